"""Every native step at native speed. Needs `import gpux:pipeline/builtins@0.1.1;` in wit/world.wit."""

import json

try:
    from wit_world.imports import builtins as _wit
except ImportError:
    raise ImportError("wit/world.wit needs the line `import gpux:pipeline/builtins@0.1.1;`") from None

from .values import answered, checked, lent


def run(name, options, *inputs):
    """Runs the built-in step `name` on `inputs`, in order: tensors, texts, bytes, or anything else as
    JSON. Gives its outputs by name."""
    return answered(_wit.run, name, json.dumps(options), [lent("", given) for given in inputs])


def prepare(name, options):
    """Prepares the built-in step `name`, in `configure` only, and gives its number for `run_prepared`:
    wrong options fail when the component is loaded, and long ones are passed once."""
    return checked(_wit.prepare, name, json.dumps(options))


def run_prepared(step, *inputs):
    """Runs the prepared step of this number on `inputs`, as `run` does."""
    return answered(_wit.run_prepared, step, [lent("", given) for given in inputs])
