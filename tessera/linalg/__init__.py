"""tmp."""
from tessera.linalg.triangular import *
from tessera.linalg.elimination import *
