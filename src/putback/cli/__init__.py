"""The command line. Its processes are short: looking for garbage while modules load costs a tenth of that time."""

import gc

gc.set_threshold(20_000)
