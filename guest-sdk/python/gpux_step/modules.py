"""Modules that are imported only while the step runs, when there are no files: those that its packages ship are kept as
code, and those of Python itself are loaded."""

import dis
import importlib
import marshal
import pkgutil
import re
import sys
import types
from importlib.machinery import PathFinder
from importlib.util import spec_from_loader

from . import log

# Of Python's own modules, those that no step can use, or that only programs and tools import.
_NO_USE = frozenset(
    "__main__ _pyrepl antigravity argparse asyncio concurrent ctypes curses dbm dis email ensurepip getopt grp http idlelib "
    "importlib multiprocessing opcode pdb pip profile pwd py_compile pydoc readline rlcompleter socket sqlite3 ssl subprocess tarfile test this "
    "tkinter turtle unittest urllib venv webbrowser xmlrpc".split()
)
# By name: the code, whether it is a package, and where it lay.
_kept = {}
# Everything else that could be imported when the component was built, by its first name.
_there = set()
_told = set()


def keep(folder):
    """Called while the component is built: keeps every module that is not loaded yet, of packages that are (but for
    Python's own) or that those name as what they need, and of what lies in `folder`."""
    _load_standard()
    own = {name.partition(".")[0] for name in sys.modules} - sys.stdlib_module_names
    beside = {found.name for found in pkgutil.iter_modules([folder])}
    whole = own | beside | _needed(own - beside - {"wit_world"})
    _keep(found for found in pkgutil.iter_modules() if found.name in whole)
    # What a package that is kept whole does not have is nowhere.
    _there.update(found.name for found in pkgutil.iter_modules() if found.name not in whole)


def _load_standard():
    """Loads what the loaded modules import from Python's own only when a function runs, as `Counter.most_common` imports
    `heapq`."""
    later = sys.stdlib_module_names - sys.modules.keys() - _NO_USE
    for module_name, module in list(sys.modules.items()):
        if module_name.partition(".")[0] in _NO_USE:
            continue
        for value in list(vars(module).values()):
            if getattr(value, "__module__", None) != module_name:
                continue
            members = vars(value).values() if isinstance(value, type) else [value]
            for member in list(members):
                code = getattr(getattr(member, "__func__", member), "__code__", None)
                for name in _imported(code, later) if code else ():
                    try:
                        importlib.import_module(name)
                    except Exception:
                        # Not on this platform.
                        continue


def _imported(code, names):
    """Those of `names` that the code imports."""
    if not names.isdisjoint(code.co_names):
        for instruction in dis.get_instructions(code):
            if instruction.opname == "IMPORT_NAME" and instruction.argval in names:
                yield instruction.argval
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _imported(constant, names)


def _needed(packages):
    """The modules of what the distributions of these `packages` need, extras included, as far as it is installed."""
    if not any(hasattr(sys.modules[name], "__path__") for name in packages):
        return set()
    from importlib import metadata

    owners = metadata.packages_distributions()
    modules = {}
    for module, names in owners.items():
        for name in names:
            modules.setdefault(_plain(name), set()).add(module)
    todo = {_plain(name) for package in packages for name in owners.get(package, ())}
    seen = set()
    while todo - seen:
        name = (todo - seen).pop()
        seen.add(name)
        if name in modules:
            todo.update(_plain(re.match(r"[\w.-]+", each).group()) for each in metadata.requires(name) or ())
    return set().union(*(modules.get(name, ()) for name in seen))


def _plain(name):
    return re.sub(r"[-_.]+", "-", name).lower()


def _keep(found):
    for finder, name, is_package in found:
        if name.rpartition(".")[2] == "__main__":
            continue
        loaded = sys.modules.get(name)
        try:
            spec = finder.find_spec(name)
            if loaded is None:
                _kept[name] = marshal.dumps(spec.loader.get_code(name)), is_package, spec.origin
        except Exception:
            # What Python cannot read or compile fails when it is imported, and is then named.
            continue
        if is_package:
            folders = getattr(loaded, "__path__", spec.submodule_search_locations)
            _keep(pkgutil.iter_modules(folders, f"{name}."))


class _Loader:
    @staticmethod
    def create_module(spec):
        return None

    @staticmethod
    def exec_module(module):
        exec(marshal.loads(_kept[module.__name__][0]), module.__dict__)


class _Finder:
    """Stands where modules would be looked for in files."""

    @staticmethod
    def find_spec(name, path=None, target=None):
        if name in _kept:
            _, is_package, origin = _kept[name]
            spec = spec_from_loader(name, _Loader, origin=origin, is_package=is_package)
            spec.has_location = True
            return spec
        if name.partition(".")[0] not in _there:
            # Python says itself that there is none.
            return None
        why = f"No module named {name!r} in a step, which has no files: import it at the top of app.py"
        # Many a package goes on without a module, and gives something else.
        if name not in _told:
            _told.add(name)
            log.error(why)
        raise ModuleNotFoundError(why, name=name)


def close():
    """Called when the files are gone."""
    sys.meta_path[:] = [finder for finder in sys.meta_path if finder is not PathFinder] + [_Finder]
