import signal

import pytest
from hypothesis import settings

# Kernels compile at their first call, which no deadline can foresee. The same examples are drawn every time.
settings.register_profile("pymc_pacauc", deadline=None, derandomize=True)
settings.load_profile("pymc_pacauc")

# A shell starts its background jobs with SIGINT ignored; tests of Ctrl-C need Python's own handler.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="module")
def quick_compilation():
    """PyMC compiles a function that records draws; here it runs so seldom that compiling it well does not pay."""
    import pytensor

    with pytensor.config.change_flags(mode="FAST_COMPILE"):
        yield
