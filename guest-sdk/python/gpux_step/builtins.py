"""Every native step at native speed. Needs `import gpux:pipeline/builtins@0.1.0;` in wit/world.wit."""

import json

try:
    from wit_world.imports import builtins as _wit
except ImportError:
    raise ImportError("wit/world.wit needs the line `import gpux:pipeline/builtins@0.1.0;`") from None

from .values import answered, lent


def run(name, options, *inputs):
    """Runs the built-in step `name` on `inputs`, in order: tensors, texts, bytes, or anything else as
    JSON. Gives its outputs by name."""
    return answered(_wit.run, name, json.dumps(options), [lent("", given) for given in inputs])
