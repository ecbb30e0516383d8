"""The pipeline's models. Needs `import gpux:pipeline/models@0.1.1;` in wit/world.wit, and
`grant: { models: [NAME] }` in gpux.yml."""

try:
    from wit_world.imports import models as _wit
except ImportError:
    raise ImportError("wit/world.wit needs the line `import gpux:pipeline/models@0.1.1;`") from None

from .values import answered, checked, lent


def run(model, inputs):
    """Runs `model` on `inputs`, by the model's own names. Gives its outputs by name."""
    return answered(_wit.run, model, [lent(name, given) for name, given in inputs.items()])


def require(model):
    """Raises an error where gpux.yml does not grant `model`: in `configure`, so that loading the component
    fails."""
    checked(_wit.require, model)
