"""Exit codes of the program -> exceptions."""


class EspalierError(RuntimeError):
    """A program that failed.

    `code` is its exit code; the message is the last line that it wrote, which says what to do.
    """

    def __init__(self, message, code):
        super().__init__(message)
        self.code = code


class ConfigError(EspalierError):
    """Arguments, config or paths."""


class DataError(EspalierError):
    """Rows."""


class WeightsError(EspalierError):
    """Weights or checkpoints."""


class PluginError(EspalierError):
    """Plugins."""


class RanksLostError(EspalierError):
    """Lost ranks."""


class NotFiniteError(EspalierError):
    """Numbers that are not finite."""


class OutOfMemoryError(EspalierError):
    """Memory or disks; also a plan that does not fit."""


_OF_CODES = {
    2: ConfigError,
    3: DataError,
    4: WeightsError,
    5: PluginError,
    6: RanksLostError,
    7: NotFiniteError,
    8: OutOfMemoryError,
}


def of(code, message):
    """The exception of an exit code."""
    return _OF_CODES.get(code, EspalierError)(message, code)
