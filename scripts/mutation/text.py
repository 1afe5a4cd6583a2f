"""A source file, in which functions and mutants are found by line and column."""


class Text:
    def __init__(self, text):
        self.text = text
        self.lines = [0]
        for line in text.splitlines(keepends=True):
            self.lines.append(self.lines[-1] + len(line))

    def span(self, span):
        at = lambda place: self.lines[place["line"] - 1] + place["column"] - 1
        return at(span["start"]), at(span["end"])

    def body(self, function):
        """What is between the braces of a function: its signature has none, except in comments."""
        start, end = self.span(function["span"])
        place, depth = start, 0
        while True:
            if self.text.startswith("//", place):
                place = self.text.index("\n", place)
            character = self.text[place]
            if character == "{" and depth == 0:
                return place + 1, end - 1
            depth += {"(": 1, "[": 1, ")": -1, "]": -1}.get(character, 0)
            place += 1

    def signature(self, function):
        """What stands before that, without comments."""
        start, _ = self.span(function["span"])
        lines = self.text[start : self.body(function)[0] - 1].splitlines()
        return "\n".join(line for line in lines if not line.lstrip().startswith("//"))
