"""The run directory: writing it while a run trains, and reading it back as a Run.

format        names of files, tables and their schemas, limits
blocks        rows that stand for one look or for many
history       a signal of any length in bounded memory; the same live and afterwards
ledger        facts in bounded memory
intake        what was recorded since the last flush -> Arrow batches and histories
segments      append-only Arrow streams of one process
compaction    rewriting closed segments; digests of histories that stand for deleted ones
writer        Recorder: the hot path and the thread behind it
streams       reading Arrow streams that may be torn or hostile
sessions      the files of one rank, ordered and checked
reader        open_run
listing       the runs in a folder
captures      the state of a failing step: names, writing, retention
captured      opening such a capture, whoever made it
environment   what it takes to reproduce a run
"""
