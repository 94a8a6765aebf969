"""Files of strangers, opened without being led astray.

In: a path. Out: an open file. A link is not followed; a pipe or a device, which could block, is not read.
"""

import os
import stat
from pathlib import Path
from typing import BinaryIO

from ncclprobe.model.errors import ParseError


def open_regular(path: Path) -> BinaryIO:
    """ParseError when it cannot be opened, or is no regular file."""
    try:
        file = os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb")
    except OSError as error:
        raise ParseError(error.strerror or str(error), "make it readable, or leave it out") from None
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise ParseError("it is no regular file", "name the file itself")
    return file
