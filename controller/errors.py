"""The error types that leave Brimful's own code."""


class BrimfulError(Exception):
    """Base of every error Brimful raises on purpose."""


class ConfigError(BrimfulError, ValueError):
    """A configuration was refused before anything started.

    Args:
        problems: one line per problem; each names the key, the value and what is allowed.
    """

    def __init__(self, problems: list[str]) -> None:
        self.problems = problems
        super().__init__("\n".join(problems))

    def __reduce__(self) -> tuple[type["ConfigError"], tuple[list[str]]]:
        return type(self), (self.problems,)


class ReportError(BrimfulError, ValueError):
    """A replica's report is impossible (negative counts, NaN) and was ignored."""
