"""Which copy a name leads to in one image: open, index, flatten, attribute, and ask the trace's own search."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from imgdiff import about, engines, pipeline, tree
from imgdiff import attribution as attributing
from imgdiff import config as configs
from imgdiff.errors import IncompleteError, UsageError
from imgdiff.facts import Facts, ImageFacts
from imgdiff.layer import Progress, index_layers
from imgdiff.model import Attribution, Image, LayerIndex, Lookup, LookupKind, LookupLoad, Profile, Tree
from imgdiff.store import Store
from imgdiff.surrogates import encodable
from imgdiff.trace import lookup as asking
from imgdiff.trace.launch.words import split_entry
from imgdiff.trace.tracer import Tracer


class Question(msgspec.Struct, frozen=True):
    """What is asked: the name, what it can be (default: told by its form), and the absolute path of the ELF file that
    asks for a library (None: the program itself)."""

    name: str
    kinds: tuple[LookupKind, ...] = ()
    loader: str | None = None


def resolve(reference: str, question: Question, options: pipeline.Options, progress: Progress | None = None) -> Lookup:
    """Return what a name leads to in an image, and every place that is searched.

    Without ``options.roles`` it is what processes have at their start. With them these roles are traced, and the copies
    that the traces take are told too. Raises ImgdiffError where the image can't be used.
    """
    pipeline.check(options)
    kinds = question.kinds or asking.kinds_of(question.name)
    if question.loader is not None and "library" not in kinds:
        raise UsageError(f"{question.name!r} is no library, so no file asks for it", "leave out --for")
    with pipeline.open_store(options) as store:
        image = pipeline.opened(reference, options)
        if image.wheel is not None:
            raise UsageError(
                f"{reference} is a wheel, which has no search path", "name an image that it is installed in"
            )
        facts = Facts(store, options.jobs)
        try:
            image, indexes = _index(image, store, progress, options.jobs)
            asked = msgspec.structs.replace(question, kinds=kinds)
            return encodable(_answer(image, indexes, store, facts, asked, options))
        finally:
            facts.close()


def _index(image: Image, store: Store, progress: Progress | None, jobs: int | None) -> tuple[Image, list[LayerIndex]]:
    def stop() -> None:
        if image.transfer is not None:
            image.transfer.stop()

    try:
        indexes = index_layers(image.layers, store, progress, jobs, stop)
    except IncompleteError:
        if image.whole is None:
            raise
        image = msgspec.structs.replace(image.whole(), reference=image.reference)
        indexes = index_layers(image.layers, store, progress, jobs)
    if image.snapshot is not None:
        store.borrow(image.snapshot)
    return image, indexes


def _answer(
    image: Image,
    indexes: Sequence[LayerIndex],
    store: Store,
    facts: Facts,
    question: Question,
    options: pipeline.Options,
) -> Lookup:
    texts = store.texts([each for layer, each in zip(image.layers, indexes, strict=True) if layer.kept is None])
    merged = tree.flatten(indexes)
    attribution = attributing.attribute(merged, texts, "a")
    profile = _profile(attribution, merged, options)

    def tracer() -> Tracer:
        source = ImageFacts(merged, texts, facts)
        return Tracer(merged, attribution, source, image.config, profile, options.entry, "a")

    asked = tracer()
    answers = asking.look_up(asked, question.name, question.kinds, question.loader)
    caveats = [_shown(text, image, options) for text in asked.commands.caveats]
    if image.config is None and options.entry is None:
        caveats.append("a root file system has no config: entry point, ENV and working directory are not known")
    caveats += [text.replace("{side}", "the image") for text in image.caveats]
    loads: tuple[LookupLoad, ...] = ()
    if options.roles:
        loads = asking.loads(tracer().run(), profile, question.name, options.roles, answers)
    return Lookup(
        about.VERSION,
        image.reference,
        question.name,
        profile.name if profile.package is not None else None,
        answers,
        loads,
        options.roles,
        tuple(caveats),
    )


def _profile(attribution: Attribution, merged: Tree, options: pipeline.Options) -> Profile:
    if options.profile is not None:
        profile = next(each for each in engines.load_profiles() if each.name == options.profile)
    else:
        profile = engines.recognise(attribution, merged)
    names = [role.name for role in profile.roles]
    for role in options.roles:
        if role not in names:
            raise UsageError(f"profile {profile.name} has no role {role!r}", f"it has: {', '.join(names)}")
    return profile


def _shown(text: str, image: Image, options: pipeline.Options) -> str:
    """Return a sentence of the trace with the command line in it redacted."""
    argvs = [] if image.config is None else [[*image.config.entrypoint, *image.config.cmd]]
    if options.entry is not None:
        argvs.append(split_entry(options.entry))
    for argv in argvs:
        if argv:
            text = text.replace(" ".join(argv), " ".join(configs.redact_argv(argv)))
    return text
