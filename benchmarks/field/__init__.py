"""A benchmark of training code that nobody here wrote: other projects' loops, healthy and with one fault each."""
