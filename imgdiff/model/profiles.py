"""Engine profiles (TOML data under ``imgdiff/engines/``)."""

from __future__ import annotations

from typing import Literal

import msgspec

Bears = Literal["stands", "undecided", "none"]


class PathRule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A pattern over absolute paths (``/var/log/**``; ``*`` stops at a slash, ``**`` does not), and why it is here."""

    pattern: str
    reason: str


class EnvRule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A pattern over ENV names (``VLLM_*``), what a change of such a name bears, and why."""

    name: str
    bears: Literal["stands", "undecided", "none", "path"]  # path: bears through what it resolves
    reason: str


class ArgvRule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A command-line option that says something when it has one of ``values`` or a number above ``above``."""

    option: str
    reason: str
    values: tuple[str, ...] = ()
    above: int | None = None


class RootGroup(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Modules of which any one makes a root (each member that exists is one); none of them is a blindspot."""

    any_of: tuple[str, ...]
    reason: str
    optional: bool = False


class ProfileRole(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One kind of process. ``engine``: the claim is about it. ``does``: what it does, in a few words. ``plugins``:
    entry-point groups loaded in it. ``includes``: roles that can live inside it, unless the argv has one of
    ``includes_unless``. ``spawned``: it is a child that imports the entry's main module again as ``__mp_main__``.
    ``parent``: the role whose process it is forked from (None: it is the one that the entry starts). ``titles``:
    patterns of its processes' titles and multiprocessing names, by which a recording is read."""

    name: str
    engine: bool
    does: str
    roots: tuple[RootGroup, ...] = ()
    plugins: tuple[str, ...] = ()
    includes: tuple[str, ...] = ()
    spawned: bool = True
    parent: str | None = None
    includes_unless: tuple[ArgvRule, ...] = ()
    titles: tuple[str, ...] = ()


class AssumeRule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What ``--assume NAME=VALUE`` leaves out: the modules in ``leaves_out``, where those in ``by`` lead to them over a
    name, or a bare word does, or they are one of several roots."""

    name: str
    value: str
    by: tuple[str, ...]
    leaves_out: tuple[str, ...]
    reason: str


class Condition(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A call without arguments that an assumption decides: ``object`` (a name of a module, dotted), its ``method``, and
    the values of ``assume`` under which it is ``true``; under every other one it is false."""

    object: str
    method: str
    assume: str
    true: tuple[str, ...]
    reason: str


class ModelTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A table of model architectures: dict literals ``{"Architecture": ("module", "Class")}`` of ``module`` whose names
    match ``tables``, with modules below ``package``; those in ``always`` serve every architecture. A model whose code
    uses a name in ``reopens`` loads further models through the table; an option that matches a pattern in ``unless``
    (with dashes for underscores) on the command line names another model. Code of the packages in ``renames`` can put
    another architecture in the place of the config's: those that it names are kept."""

    module: str
    tables: tuple[str, ...]
    package: str
    reason: str
    always: tuple[str, ...] = ()
    reopens: tuple[str, ...] = ()
    unless: tuple[str, ...] = ()
    renames: tuple[str, ...] = ()


class Assumed(msgspec.Struct, frozen=True):
    """What the user says of the run: values by name (``platform``), and the model's architectures. ``whole``: they come
    from its config.json, which names those of the models inside it too; ``unnamed``: where in it a model inside lies
    without."""

    values: tuple[tuple[str, str], ...] = ()
    architectures: tuple[str, ...] = ()
    whole: bool = False
    unnamed: tuple[str, ...] = ()


class Profile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What we know of one engine. ``package``: the import package that it is recognised by (None: the generic one).

    ``entries``: command lines that start it, as console script names or ``-m module``. ``start_methods``: the
    multiprocessing start methods that are possible. ``start_method_env``: the ENV name that fixes one.
    ``build_labels``: ENV names that only say what was built. ``evaluates_version``: substrings that the engine looks
    for in its own distribution's version. ``read_at_run_time``: directories whose files are ``unknown``.
    ``outside``: trees that the engine never reads. ``assumes``, ``conditions`` and ``model_tables``: what assumptions
    can leave out; ``assumed``: those of this run.
    """

    name: str
    package: str | None
    roles: tuple[ProfileRole, ...]
    entries: tuple[str, ...] = ()
    start_methods: tuple[Literal["fork", "spawn", "forkserver"], ...] = ("fork", "spawn")
    start_method_env: str | None = None
    build_labels: tuple[str, ...] = ()
    env: tuple[EnvRule, ...] = ()
    evaluates_version: tuple[str, ...] = ()
    read_at_run_time: tuple[PathRule, ...] = ()
    outside: tuple[PathRule, ...] = ()
    assumes: tuple[AssumeRule, ...] = ()
    conditions: tuple[Condition, ...] = ()
    model_tables: tuple[ModelTable, ...] = ()
    assumed: Assumed = Assumed()
