"""The one exception by which a command refuses what the user asked."""


class UsageError(Exception):
    """The command cannot be carried out as given; each problem is a line that says what to change."""

    def __init__(self, *problems: str) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems
