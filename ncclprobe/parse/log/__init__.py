"""Text logs of any program of a job, read as a stream of lines.

In: an open log. Out: `LogEvent`s, `OpTrace`s and `Speaker`s. `stream` finds the lines that can matter and takes their
prefixes off; each recognizer module turns the lines it knows into facts.
"""
