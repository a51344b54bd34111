"""The peers: published tools that diagnose a training, each attached to other people's programs as it documents."""
