"""Finding the few telling lines among millions.

In: a piece of a log, whole lines. Out: where in it the lines are that hold one of many words.

A search for each of 200 words costs 40 s per GB. Logs repeat themselves: lines that are equal but for their numbers are
looked at once (2 s per GB), and of lines that are all new each word is (10 s per GB).
"""

from collections.abc import Iterable, Iterator

_NUMBERS = b"0123456789.+-"
_BREAKS = bytes.maketrans(b"\r", b"\n")
# Shapes of lines, and parts of lines between blanks, that hold nothing; forgotten when a log makes ever new ones.
_MAX_SHAPES, _MAX_SHAPE = 20_000, 4_096
_MAX_PARTS, _MAX_PART = 100_000, 64


class Needles:
    """The words, with what is known so far of the log."""

    def __init__(self, words: Iterable[bytes]) -> None:
        self.words = _shortest(words)
        self._bare = {word: word.translate(None, _NUMBERS) for word in self.words}
        self._key = {word: max(bare.split(), key=len, default=b"") for word, bare in self._bare.items()}
        self._shapes: set[bytes] = set()
        self._parts: set[bytes] = set()

    def places(self, data: bytes) -> list[int]:
        """Offsets of hits in order, at least one in each line that holds a word."""
        shapes = set(data.translate(_BREAKS, _NUMBERS).split(b"\n")) - self._shapes
        if not shapes:
            return []
        text = b"\n".join(shapes)
        hits = [word for word in self._likely(text) if self._bare[word] in text]
        self._learn_shapes(shapes, hits)
        broken = data.translate(_BREAKS) if b"\r" in data else data
        return sorted(place for word in hits for place in _places_of(word, broken))

    def _likely(self, text: bytes) -> list[bytes]:
        """Words whose longest part is in the text."""
        parts = set(text.split()) - self._parts
        if not parts:
            return [word for word in self.words if not self._key[word]]
        joined = b"\n".join(parts)
        likely = [word for word in self.words if self._key[word] in joined]
        _learn(self._parts, parts, [self._key[word] for word in likely], _MAX_PARTS, _MAX_PART)
        return likely

    def _learn_shapes(self, shapes: set[bytes], hits: list[bytes]) -> None:
        _learn(self._shapes, shapes, [self._bare[word] for word in hits], _MAX_SHAPES, _MAX_SHAPE)


def _learn(known: set[bytes], new: set[bytes], hits: list[bytes], most: int, longest: int) -> None:
    """Adds those that hold none of the hits."""
    if len(known) + len(new) > most:
        known.clear()
    if len(new) <= most:
        clean = new if not hits else {one for one in new if not any(hit in one for hit in hits)}
        known.update(one for one in clean if len(one) <= longest)


def _shortest(words: Iterable[bytes]) -> list[bytes]:
    """Without those that hold another one, for that one finds them too."""
    kept: list[bytes] = []
    for word in sorted(set(words), key=lambda word: (len(word), word)):
        if word and not any(other in word for other in kept):
            kept.append(word)
    return kept


def _places_of(word: bytes, data: bytes) -> Iterator[int]:
    """One a line is enough, so the search goes on behind the line's end."""
    place = data.find(word)
    while place >= 0:
        yield place
        end = data.find(b"\n", place)
        place = data.find(word, end) if end >= 0 else -1
