"""Arrow's functions over columns. They are made when the library is loaded, where no type checker can follow."""

from typing import Any, Final

import pyarrow.compute

compute: Final[Any] = pyarrow.compute
