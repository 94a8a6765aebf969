"""The parts of an SSH connection, one file each: settings, byte stream, host key, login, running command.

In: a host and the user's own SSH files. Out: a command that runs there. Put together in `collect.transport.ssh`.
"""
