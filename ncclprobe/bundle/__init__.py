"""The one hand-over between collecting and analysing.

In: artifacts as they come. Out: a directory or archive that can be read again, and checked while it is.
"""

from ncclprobe.bundle.reader import Bundle, is_bundle, open_bundle
from ncclprobe.bundle.writer import BundleWriter

__all__ = ["Bundle", "BundleWriter", "is_bundle", "open_bundle"]
