"""The pipeline's models. Needs `import gpux:pipeline/models@0.1.0;` in wit/world.wit, and
`grant: { models: [NAME] }` in gpux.yml."""

try:
    from wit_world.imports import models as _wit
except ImportError:
    raise ImportError("wit/world.wit needs the line `import gpux:pipeline/models@0.1.0;`") from None

from .values import answered, lent


def run(model, inputs):
    """Runs `model` on `inputs`, by the model's own names. Gives its outputs by name."""
    return answered(_wit.run, model, [lent(name, given) for name, given in inputs.items()])
