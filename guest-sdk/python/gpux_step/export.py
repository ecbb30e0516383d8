"""The step that a component exports, made of a class."""

import json
import os
import sys

from componentize_py_types import Err
from wit_world import exports
from wit_world.exports.step import Description, Signature
from wit_world.imports.types import Error_Failed, Error_InvalidInput, NamedValue

from . import log, modules
from .sandbox import enter, leave
from .values import InvalidInput, from_value, to_value


class Step:
    """A step of a pipeline. `export` makes a component of a class derived from it."""

    summary = ""
    """One line for people: what the step does."""

    options = {"type": "object", "additionalProperties": False}
    """The JSON Schema of the options."""

    def configure(self, **options):
        """Sets the step up; gives `signature(…)`. The options come by name. Whatever can be prepared
        once belongs here: gpux may keep the configured step and start each request from it."""
        raise NotImplementedError

    def process(self, **inputs):
        """Works on one request: the inputs come by name, and the outputs are given by name."""
        raise NotImplementedError


def export(step):
    """What a module must call `Step`: the step of the class `step`."""
    modules.keep(os.path.dirname(getattr(sys.modules[step.__module__], "__file__", None) or "."))
    # One of these is made for each call; what was configured must outlive it.
    configured = _Configured(step)

    class Exported(exports.Step):
        def describe(self):
            return Description(step.summary, json.dumps(step.options, ensure_ascii=False))

        def configure(self, options):
            return _told(configured.configure, options)

        def process(self, inputs):
            return _told(configured.process, inputs)

    return Exported


class _Configured:
    def __init__(self, step):
        self._class = step

    def configure(self, options):
        self._step = self._class()
        signature = self._step.configure(**json.loads(options))
        self._kinds = {name: type(port.kind).__name__.removeprefix("Kind_") for name, port in signature.outputs.items()}
        sides = (signature.inputs, signature.outputs)
        return Signature(*([port.named(name) for name, port in side.items()] for side in sides))

    def process(self, inputs):
        outputs = self._step.process(**{each.name: from_value(each.value) for each in inputs})
        return [NamedValue(name, self._value(name, given)) for name, given in outputs.items()]

    def _value(self, name, given):
        try:
            return to_value(given, self._kinds.get(name, "Any"))
        except (TypeError, ValueError) as error:
            raise TypeError(f"the output `{name}`: {error}") from None


def _where(error):
    """A traceback without source lines: there are no files to read them from."""
    lines = [f"{type(error).__name__}: {error}"]
    at = error.__traceback__
    while at:
        code = at.tb_frame.f_code
        lines.append(f"in {code.co_name}, {code.co_filename}:{at.tb_lineno}")
        at = at.tb_next
    return "; ".join(lines)


def _told(call, given):
    """Only what the step raises on purpose is the caller's fault; the rest is told with where it happened."""
    enter()
    try:
        return call(given)
    except InvalidInput as error:
        raise Err(Error_InvalidInput(str(error))) from None
    except Exception as error:
        log.error(_where(error))
        raise Err(Error_Failed(f"{type(error).__name__}: {error}")) from None
    finally:
        leave()
