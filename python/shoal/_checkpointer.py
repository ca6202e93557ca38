"""Checkpointer and Checkpoint: save and load a dictionary of values."""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import sys
import threading
import typing
import weakref

from . import _arguments, _arrays, _client, _handle, _process_group, _program, _safetensors_export
from . import _progress, _steady, _tree, _values
from ._errors import EarlierSaveFailed, Error, InvalidArgument, KeyMismatch, NotFound, Refused
from ._handle import SaveHandle
from ._safetensors_export import SafetensorsExport

logger = logging.getLogger("shoal")

State = typing.Mapping[str, typing.Any]
Step = typing.Union[int, typing.Literal["latest"]]

_NAMED_MAX = 20  # names in the message of one error
_EXIT_TIMEOUT_S = 600.0  # how long the exit of the interpreter waits for saves to be decided

_BUSY_EXIT_TIMEOUT_S = 1.0  # after an uncaught exception, how long for the call of another thread

_open: "weakref.WeakSet[Checkpointer]" = weakref.WeakSet()


def _options(root: str | os.PathLike[str] | None, given: dict[str, typing.Any]) -> typing.Any:
    instead = {} if root is None else {"SHOAL_ROOT": _arguments.root(root, "root")}
    for name, variable in (("rank", "RANK"), ("world_size", "WORLD_SIZE"), ("job_id", "SHOAL_JOB_ID")):
        value = given.pop(name, None)
        if value is not None:
            instead[variable] = str(value)
    if "RANK" not in instead and "WORLD_SIZE" not in instead:
        instead = {**_process_group.variables(), **instead}
    try:
        options = _client.Options.from_environment(instead)
    except InvalidArgument:
        if ("RANK" in instead) == ("WORLD_SIZE" in instead):
            raise
        has, lacks = ("rank", "world_size") if "RANK" in instead else ("world_size", "rank")
        if os.environ.get(lacks.upper()):
            raise
        raise InvalidArgument(
            f"{has} is {instead[has.upper()]}, but {lacks} is not given, and no launcher has set "
            f"{lacks.upper()}: pass rank and world_size, or neither"
        ) from None
    program = given.pop("node_program", None)
    options.node_program = _arguments.path(program, "node_program") if program else _program.own()
    node = given.pop("node", None) or {}
    if not isinstance(node, typing.Mapping):
        raise InvalidArgument(f"node is {node!r}: a dict of settings is needed, such as {{'keep_last': 5}}")
    for name, value in node.items():
        if value is None:
            continue
        try:
            options.set_node(name, value)
        except (TypeError, RuntimeError):  # nanobind's errors for a value of another type
            raise InvalidArgument(f"the node's setting {name!r} cannot be {value!r}") from None
    for name in ("dedupe", "on_busy", "on_failed", "replica_check"):
        value = given.pop(name, None)
        if isinstance(value, str):
            getattr(options, f"set_{name}")(value)
        elif value is not None:
            raise InvalidArgument(f"the option {name} cannot be {value!r}")
    for name, value in given.items():
        if value is None:
            continue
        if name.startswith("_") or name not in dir(options):
            raise InvalidArgument(f"Checkpointer has no option '{name}'")
        try:
            setattr(options, name, value)
        except TypeError:
            raise InvalidArgument(f"the option {name} cannot be {value!r}") from None
    return options


def _real_root(root: str) -> str:
    is_folder = not _arguments.is_in_object_store(root)
    return os.path.realpath(root) if is_folder else _arguments.root(root, "root")


def open_in_this_process(root: str) -> list["Checkpointer"]:
    """Those that save to a root."""
    return [
        each
        for each in list(_open)
        if each._pid == os.getpid()
        and not each._client.options.read_only
        and _real_root(each.root) == _real_root(root)
    ]


def _check_root(options: typing.Any) -> None:
    """Finds what would otherwise be the end of a wait for the node."""
    root = str(options.root)
    if not _arguments.is_in_object_store(root) and not os.path.lexists(root):
        _arguments.root(root, "the root")  # of SHOAL_ROOT: an address in the wrong form
        raise NotFound(f"the root {root} does not exist: create this folder first, on storage of all hosts")
    for other in [] if options.read_only else open_in_this_process(root):
        if other._client.options.job_id != options.job_id or other._rank == options.rank:
            raise Refused(
                f"this process has a Checkpointer of the root {root} already: use it, close it first, or "
                "pass read_only=True to open one that only loads"
            )


class _Packed(typing.NamedTuple):
    """A State of the client, and what keeps its memory alive."""

    state: typing.Any
    owner: typing.Any


class Checkpointer:
    """Saves and loads the checkpoints of a training run.

    ``root`` is a folder that all hosts see, or s3://BUCKET/PREFIX. Under torchrun, ``shoal launch``, mpirun
    or srun, rank and world size come from the launcher. Without a launcher they come from the default process
    group of torch, if it is initialized; else the process is a job of one rank. The first rank of a host
    starts the node that writes the files.

    Any thread may call a Checkpointer; its calls run one at a time. Use it as a context manager, or call
    close, to get the errors of the last saves as exceptions. At exit they are printed.
    """

    def __init__(
        self,
        root: str | os.PathLike[str] | None = None,
        *,
        rank: int | None = None,
        world_size: int | None = None,
        job_id: str | None = None,
        read_only: bool | None = None,
        mode: typing.Literal["collective-free", "rank-local", "collective"] | None = None,
        dedupe: typing.Literal["balanced", "lowest-rank", "none"] | None = None,
        max_in_flight: int | None = None,
        on_busy: typing.Literal["wait", "decline"] | None = None,
        on_failed: typing.Literal["report", "refuse"] | None = None,
        allow_pickle: bool = False,
        debug_torn: bool = False,
        replica_check: typing.Literal["off", "warn", "abort"] | None = None,
        node: typing.Mapping[str, typing.Any] | None = None,
        progress: bool | typing.Callable[[_progress.Progress], object] = False,
        **options: typing.Any,
    ) -> None:
        """Finds the node of this host, or starts one, and attaches to it.

        root: None takes it from SHOAL_ROOT.
        rank, world_size, job_id: replace what the launcher says. The job id is the same on all ranks of one
            run and never used again.
        read_only: this job only loads, and does not affect a job that trains on the same root.
        allow_pickle: values that Shoal does not know are stored as pickles, and pickles are loaded. A pickle
            can run code when it is loaded.
        debug_torn: digests the arrays before and after each save has copied them. A save during which another
            thread writes to one raises InvalidArgument with its name, instead of keeping a mixture. Costs two
            reads of the state. An array that is converted or gathered first, such as one that is not
            contiguous, is not verified.
        replica_check: each save compares, by digests, another twentieth of the bytes that several ranks hold
            by their placements, or as `shoal.replicated` declares. "warn" commits a save in which replicas
            differ, and logs tensor, block and ranks (`SaveHandle.warning`); "abort" aborts it with that
            cause. Only host memory, and not in mode rank-local.
        node: settings of the node that this process starts, such as {"keep_last": 5}.
        progress: True shows a bar on rank 0 while a save or a load runs, if standard error is a terminal. A
            function is called with a `shoal.Progress` several times a second, in a thread of Shoal.
        Further options have the names of CheckpointerOptions (include/shoal/checkpointer.h).
        """
        given = dict(
            options,
            rank=rank,
            world_size=world_size,
            job_id=job_id,
            read_only=read_only,
            mode=mode,
            dedupe=dedupe,
            max_in_flight=max_in_flight,
            on_busy=on_busy,
            on_failed=on_failed,
            debug_torn=debug_torn,
            replica_check=replica_check,
            node=node,
        )
        if "torch" in sys.modules:
            # A signal handler that saves must not come in the midst of this import.
            from . import _tensors  # noqa: F401
        allow_pickle = _arguments.truth(allow_pickle, "allow_pickle")
        settled = _options(root, given)
        callback = _progress.callback_of(progress, int(settled.rank))
        _check_root(settled)
        self._allow_pickle = allow_pickle
        self._rank = int(settled.rank)  # of the launcher
        ranks = list(settled.process_group) or list(range(settled.world_size))
        self._world = _client.Mesh.from_ranks([len(ranks)], ranks)
        self._groups: dict[typing.Any, typing.Any] = {"world": self._world}
        self._lock = threading.RLock()
        self._structures = _tree.Structures()
        self._steady: _steady.Steady | None = None
        self._arrays: _steady.References | None = None  # of the last save that no Steady could repeat
        self._in_flight: typing.List[_handle.Warnings] = []  # no handles: those keep this object alive
        self._optimizers: typing.List[str] = []  # of the state that was saved last
        self._has_looked_at_stages = False
        self._without_parts: typing.List[str] = []  # of the next save: arrays of which this rank has nothing
        self._has_looked_for: typing.Set[str] = set()
        self._readers: "weakref.WeakSet[Checkpoint]" = weakref.WeakSet()
        self._client = _client.Checkpointer.open(settled)
        self._watcher = _progress.Watcher(self._client, callback) if callback else None
        self._pid = os.getpid()
        _open.add(self)

    # ---- facts ----

    @property
    def root(self) -> str:
        return str(self._client.options.root)

    @property
    def rank(self) -> int:
        """The rank of this process, as the launcher numbers it."""
        return self._rank

    @property
    def world_size(self) -> int:
        return int(self._world.shape[0])

    @property
    def generation(self) -> int:
        """The number of this run in its root."""
        return int(self._client.generation)

    @property
    def _is_closed(self) -> bool:
        return self not in _open

    def __repr__(self) -> str:
        return f"<shoal.Checkpointer {self.root!r}, rank {self._rank} of {self.world_size}>"

    # ---- saving ----

    def save(
        self,
        step: int,
        state: State,
        *,
        metadata: typing.Mapping[str, str] | None = None,
        allow_pickle: bool | None = None,
    ) -> SaveHandle:
        """Copies the state and returns; the node then writes it, and the checkpoint is committed.

        The caller may change every value as soon as save has returned. `state` is a dict of nested dicts,
        lists and tuples; its leaves are numpy arrays, torch tensors, DTensors, numbers, strings, bytes, None,
        and objects with state_dict and load_state_dict. `shoal.per_rank` and `shoal.replicated` say more
        about a value. No collective is called, and no process group is needed. Each state_dict is called
        once, in the same order in every save, so that one may call collectives of its own.

        A plain array is one value of the whole job: one of the ranks that have it writes it. If it differs
        between ranks, wrap it in `shoal.per_rank`.

        metadata: text that is stored with the checkpoint, and that `shoal ls` prints; equal on all ranks.

        Raises EarlierSaveFailed, once, if an earlier save failed and nothing has reported that yet; this save
        was staged nevertheless, and the error's `handle` is its handle.
        """
        allow = _arguments.truth(allow_pickle, "allow_pickle", self._allow_pickle)
        number = _arguments.step_to_save(step)
        with self._lock:
            with self._describing(number):
                texts = _arguments.texts(metadata, "metadata")
                packed = self._pack(_dict(state), allow)
            return self._submit(number, packed.state, texts)

    @contextlib.contextmanager
    def _describing(self, step: int) -> typing.Iterator[None]:
        """Around what a save does before it calls the client. An exception there aborts the save of the other
        ranks at once, with its text as the cause; without a word they would wait for this rank."""
        try:
            yield
        except BaseException as error:
            with contextlib.suppress(Error):
                if self.world_size > 1:
                    self._client.fail_save(step, f"{type(error).__name__}: {error}")
            raise

    def _submit(self, step: int, state: typing.Any, texts: typing.Mapping[str, str]) -> SaveHandle:
        """Saves a State of the client. Every way to save ends here."""
        with self._lock:
            self._log_warnings()
            with self._watcher.saving(step) if self._watcher else contextlib.nullcontext() as shown:
                try:
                    handle = SaveHandle(self._client.save(step, state, texts), self)
                except EarlierSaveFailed as error:
                    last = self._client.last_save()
                    if last is not None and last.step == step:
                        error.handle = SaveHandle(last, self)
                    raise
                if shown is not None:
                    shown.bytes_total, shown.handle = handle.stats.bytes_staged, handle._handle
            self._in_flight.append(handle._warnings)
            handle._warnings.without_parts, self._without_parts = self._without_parts, []
        stats = handle.stats
        logger.info(
            "step %d is staged: %.1f MiB in %.1f ms",
            step,
            stats.bytes_staged / 2**20,
            stats.seconds_blocked * 1e3,
        )
        return handle

    def _log_warnings(self) -> None:
        # In the order of the saves: each is compared with the one before it, which may still be in flight.
        while self._in_flight and self._in_flight[0].log():
            saved = self._in_flight.pop(0)
            self._warn_of_absent(saved.step, saved.without_parts)
            self._warn_of_stages(saved.step)

    def _warn_of_absent(self, step: int, names: list[str]) -> None:
        """Once for each name, on rank 0: `names` are arrays of which this rank holds nothing. The checkpoint
        lacks those of which no rank does."""
        names = [name for name in names if name not in self._has_looked_for]
        if self._position != 0 or not names:
            return
        with contextlib.suppress(Error), self._reader(step, None) as checkpoint:
            self._has_looked_for.update(names)
            absent = [f"'{name}'" for name in names if checkpoint._source(name) not in checkpoint]
            if absent:
                logger.warning(
                    "step %d has no value %s: no rank holds a part of it, and all ranks together must hold "
                    "every element",
                    step,
                    ", ".join(absent[:_NAMED_MAX]),
                )

    def _warn_of_stages(self, step: int) -> None:
        """Once, on rank 0: looks whether the optimizers of several ranks have saved other values under one
        name. No rank knows the state of another before the checkpoint has both."""
        if self._position != 0 or self.world_size == 1 or not self._optimizers or self._has_looked_at_stages:
            return
        with contextlib.suppress(Error), self._reader(step, None) as checkpoint:
            self._has_looked_at_stages = True
            name = _tree.shared_by_stages(checkpoint._structures(), self._optimizers)
            if name is not None:
                logger.warning(
                    "step %d has one value '%s' of several ranks whose models have different tensors: if it "
                    "is the state of different parameters, only one of them is saved. Save "
                    "get_optimizer_state_dict(..., flatten_optimizer_state_dict=True) instead of the "
                    "optimizer: its names are those of the parameters",
                    step,
                    name,
                )

    def prepare(self, state: State, *, allow_pickle: bool | None = None) -> None:
        """Prepares the memory of saves of such a state, so that the first save is as fast as later ones.
        Calls each state_dict, as a save does."""
        allow = _arguments.truth(allow_pickle, "allow_pickle", self._allow_pickle)
        with self._lock:
            self._client.prepare(self._pack(_dict(state), allow, is_repeated=True).state)

    def _pack(self, state: typing.Any, allow_pickle: bool, is_repeated: bool = False) -> "_Packed":
        """Describes a state to the client; the result keeps the memory alive that the client is to read.

        is_repeated: the next save will have the same arrays. Otherwise that is assumed if the last one had
        them: a program may make new arrays for each save, and free the old ones.
        """
        # If `repeat` raises, it has noted values that its State does not have yet: it is not used again.
        steady, self._steady = self._steady, None
        states = _tree.States()
        if steady is not None and steady.repeat(state, allow_pickle, states):
            self._steady = steady
            return _Packed(steady.state, None)
        before, self._arrays = self._arrays, None
        walker = _tree.Walker(self._rank, False, allow_pickle, states)
        root = walker.walk_all(state)
        self._optimizers = [node.name for node in walker.statefuls if _tree.is_optimizer(node.value)]
        arrays = (node for node in walker.leaves if node.kind == "array")
        self._without_parts = [node.name for node in arrays if node.array is None]
        packed, numbers = self._state_of(root, walker.leaves, allow_pickle, states)
        self._arrays = _steady.References(walker.leaves)
        if is_repeated or before == self._arrays:
            steady = _steady.Steady(root, walker.leaves, packed, numbers)
            self._steady = steady if steady.usable else None
        return _Packed(packed, walker)

    def _state_of(
        self,
        root: _tree.Node,
        leaves: typing.Iterable[_tree.Node],
        allow_pickle: bool,
        states: _tree.States | None = None,
    ) -> tuple[typing.Any, typing.List[int]]:
        """A State of the client for a tree and its leaves, and the numbers of its objects in the State."""
        packed = _client.State()
        name, content = self._structures.of(root)
        packed.add_bytes(name, content, self._world)
        numbers = []
        for node in leaves:
            if node.kind == "array":
                if node.array is not None:
                    group = self._group(node.group)
                    node.array.add_to(packed, node.name, group, node.group is not None, False)
            elif node.kind != "alias":
                group = None if node.kind == "per_rank" else self._world
                content = _tree.encode_object(node, allow_pickle, states)
                numbers.append(packed.add_bytes(node.name, content, group))
        return packed, numbers

    def _group(self, group: typing.Any) -> typing.Any:
        if group is None:
            return self._world
        known = self._groups.get(group)
        if known is None:
            known = _client.Mesh.from_ranks([len(group)], list(group))
            self._groups[group] = known
        return known

    def wait_all(self, timeout: float | None = None) -> None:
        """Waits until all saves of this Checkpointer are decided. Raises the first failure that nothing has
        reported yet, or DeadlineExceeded."""
        with self._lock:
            self._client.wait_all(_arguments.timeout_s(timeout))
            self._log_warnings()

    # ---- loading ----

    @typing.overload
    def load(
        self,
        step: Step = "latest",
        *,
        into: None = None,
        fallback: typing.Literal["none", "previous"] | None = None,
        allow_pickle: bool | None = None,
    ) -> dict[str, typing.Any]: ...

    @typing.overload
    def load(
        self,
        step: Step = "latest",
        *,
        into: State,
        policies: typing.Mapping[str, str] | None = None,
        fallback: typing.Literal["none", "previous"] | None = None,
        method: typing.Literal["automatic", "direct", "two-stage"] = "automatic",
        allow_pickle: bool | None = None,
    ) -> _client.LoadResult: ...

    def load(
        self,
        step: Step = "latest",
        *,
        into: State | None = None,
        policies: typing.Mapping[str, str] | None = None,
        fallback: typing.Literal["none", "previous"] | None = None,
        method: str = "automatic",
        allow_pickle: bool | None = None,
    ) -> typing.Any:
        """Loads a checkpoint: the latest, or the newest one of a step.

        With `into`, fills that state in place, on any number of ranks and with any sharding. Arrays keep
        their identity; other values are put into their containers; objects with load_state_dict get their
        state. Returns what was read. After an error some arrays may be overwritten.

        Without `into`, returns the whole state as a dictionary: each array is whole, and of a per_rank value
        this rank gets its own, if there is one.

        policies: by subtree ("model.layers"; "" is the root), which keys may differ: "strict",
            "allow_missing", "allow_unexpected" (the default of the root), "lenient" or "skip". Values under
            "skip" stay as they are.
        fallback: "previous" loads an older checkpoint if the latest is damaged.

        Raises NotFound if the root has no such checkpoint, KeyMismatch if keys, shapes or types differ.
        """
        allow = _arguments.truth(allow_pickle, "allow_pickle", self._allow_pickle)
        wanted = _arguments.step_to_load(step)
        _arguments.choice(fallback, "fallback", ("none", "previous"))
        _arguments.choice(method, "method", ("automatic", "direct", "two-stage"))
        with self._lock:
            if into is None:
                if policies is not None:
                    raise InvalidArgument("policies apply to a load into a state: pass `into` too")
                with self._reader(wanted, fallback) as checkpoint:
                    return checkpoint.tree(allow_pickle=allow)
            return self._load_into(
                _dict(into), wanted, _arguments.texts(policies, "policies"), fallback, method, allow
            )

    def load_or_start(
        self, into: State, *, fallback: typing.Literal["none", "previous"] | None = None
    ) -> _client.LoadResult | None:
        """Loads the latest checkpoint into a state, or returns None if the root has none: only then may a run
        start from the beginning. Every other reason is raised."""
        try:
            return self.load("latest", into=into, fallback=fallback)
        except NotFound:
            return None

    def _load_into(
        self,
        into: typing.Any,
        step: int | None,
        policies: typing.Mapping[str, str],
        fallback: str | None,
        method: str,
        allow_pickle: bool,
    ) -> typing.Any:
        walker = _tree.Walker(self._rank, True, allow_pickle)
        try:
            root = walker.walk_all(into)
            result = self._load_leaves(walker, step, policies, fallback, method, allow_pickle)
            _tree.rebuild(root)
        except BaseException:
            walker.undo()
            raise
        return result

    def _load_leaves(
        self,
        walker: _tree.Walker,
        step: int | None,
        policies: typing.Mapping[str, str],
        fallback: str | None,
        method: str,
        allow_pickle: bool,
    ) -> typing.Any:
        """Fills the leaves that a Walker has listed. Every load into a state ends here."""
        settled = {**policies, _tree.STRUCTURES: "skip"}
        optimizers = {
            name: node
            for name, node in _tree.states_of_optimizers(walker.statefuls).items()
            if not _covers(policies, name)
        }
        settled.update(dict.fromkeys(optimizers, "lenient"))
        walker.skipped.update(node.name for node in walker.leaves if _tree.is_skipped(settled, node.name))
        pending = _tree.Pending(self._world, self._position, allow_pickle)
        for node in walker.leaves:
            if node.kind == "per_rank" and not node.value.required:
                settled[node.name] = "allow_missing"
            pending.add(node)
        try:
            with self._showing_load(step):
                result = self._client.load(pending.state, step, settled, fallback, method)
        except KeyMismatch as error:
            error.report = self._client.load_report()
            result = self._load_resolved(walker, step, settled, fallback, allow_pickle)
            if result is None:
                _explain(error, walker, self._position)
                raise
        else:
            pending.finish(walker.skipped.union(result.report.missing))
            if result.report.missing:  # as policies allow, but the checkpoint may have the value elsewhere
                found = self._load_resolved(walker, result.metadata.step, settled, None, allow_pickle)
                result = result if found is None else found
        _drop_missing(optimizers, result)
        for name, states in _tree.states_of_optimizers(walker.prepared).items():
            if name not in optimizers:  # a policy keeps what is missing, which is no state
                _tree.drop_missing(states, walker.skipped.union(result.report.missing))
        self._load_statefuls(walker, result, allow_pickle)
        _warn_of_shared(walker, result)
        _warn_of_empty(walker, result)
        logger.info(
            "step %d is loaded: %.1f MiB in %.2f s",
            result.metadata.step,
            result.bytes / 2**20,
            result.seconds,
        )
        return result

    def _load_statefuls(self, walker: _tree.Walker, result: typing.Any, allow_pickle: bool) -> None:
        """Objects with load_state_dict get the whole state that was saved, also keys that they lack now: a
        data loader that has not begun may have none, and an optimizer lacks those of a parameter that has had
        no gradient."""
        nodes = [*walker.statefuls, *walker.extra_states]
        unexpected = result.report.unexpected if nodes else ()
        grown = [
            node for node in nodes if any(name.startswith(node.name + ".") for name in unexpected)
        ]
        if not grown:
            return
        with self._reader(result.metadata.step, None) as checkpoint:
            stored = checkpoint.structure()
            pending = _tree.Pending(self._world, self._position, allow_pickle)
            wholes = []
            made: dict[str, _tree.Node] = {}
            for node in grown:
                found = stored.find(node.name)
                if _tree.is_optimizer(node.value):
                    made.update(_tree.leaves_of_optimizer(node, walker, pending, checkpoint, unexpected))
                whole = _tree.whole(found, node.name, pending, checkpoint, made) if found else None
                if whole is not None:
                    wholes.append((node, whole, found))
            checkpoint._reader.load(pending.state, {"": "allow_unexpected"})
            pending.finish(())
        for node, whole, found in wholes:
            value = _tree.value_of_whole(whole, found)
            if _tree.is_optimizer(node.value):
                value = _tree.with_missing(node.children[0][1], value)
            content = node.children[0][1] if node.kind == "stateful" else node
            content.loaded = value

    def _load_resolved(
        self,
        walker: _tree.Walker,
        step: int | None,
        policies: dict[str, str],
        fallback: str | None,
        allow_pickle: bool,
    ) -> typing.Any:
        """Loads a state whose names differ from those of the checkpoint in a way that its structure explains:
        aliases, values that were containers or arrays when they were saved, and containers that were one
        object. None: it explains nothing."""
        with self._reader(step, fallback) as checkpoint:
            stored = checkpoint.structure()
            pending = _tree.Pending(self._world, self._position, allow_pickle)
            aliases: list[tuple[_tree.Node, str]] = []
            wholes: list[tuple[_tree.Node, _tree.Node, typing.Any]] = []
            made: dict[str, _tree.Node] = {}
            objects = [
                node
                for node in _tree.stored_as_objects(walker.nested, stored)
                if not _tree.is_skipped(policies, node.name)
            ]
            inside = tuple(f"{node.name}." for node in objects)
            for node in [*objects, *(leaf for leaf in walker.leaves if not leaf.name.startswith(inside))]:
                found = stored.find(node.name)
                if node.name in walker.skipped:
                    pending.add(node)
                elif node.kind == "array" and isinstance(found, dict) and "alias" in found:
                    aliases.append((node, found["alias"]))
                elif node.kind == "object" and found is not None and found != "object":
                    whole = _tree.whole(found, node.name, pending, checkpoint, made)
                    if whole is not None:
                        wholes.append((node, whole, found))
                else:
                    pending.add(node)
            if not aliases and not wholes and not objects:
                return None
            for node, source in aliases:
                pending.add(node, source)
            try:
                result = checkpoint._reader.load(pending.state, policies)
                pending.finish(walker.skipped.union(result.report.missing))
                again = pending.rest()
                while again is not None:
                    checkpoint._reader.load(again.state, {"": "allow_unexpected"})
                    again.finish(())
                    again = again.rest()
            except KeyMismatch as differs:
                differs.report = self._client.load_report()
                names = ", ".join(f"'{node.name}' of '{source}'" for node, source in aliases[:3])
                if names:
                    differs.args = (f"{differs}. The checkpoint has these aliases: {names}",)
                raise
            for node, whole, found in wholes:
                node.loaded = _tree.value_of_whole(whole, found)
            for node in objects:
                if node.loaded is _tree.NOTHING:
                    continue  # it is missing, as the policies allow
                if not _tree.fits(node.value, node.loaded):
                    raise KeyMismatch(
                        f"'{node.name}' is one object in the checkpoint, with other keys, shapes or types "
                        "than in the state: load it without a state, as ck.load(step) does, to see it"
                    )
                node.loaded = _tree.put(node.value, node.loaded)
            return result

    def _showing_load(self, step: int | None) -> typing.ContextManager[None]:
        return self._watcher.loading(step) if self._watcher else contextlib.nullcontext()

    @property
    def _position(self) -> int:
        """This rank as checkpoints number it: its position in the process group."""
        return int(self._client.options.rank)

    # ---- looking ----

    def latest(self) -> _client.Metadata | None:
        """What the latest checkpoint holds; None if the root has none."""
        with self._lock:
            try:
                return self._client.latest()
            except NotFound:
                return None

    def list(self, newest: int = 100) -> "typing.List[_client.CheckpointInfo]":
        """The newest attempts to save, ascending, each with its state: 'committed' is a checkpoint."""
        with self._lock:
            return self._client.list(_arguments.count(newest, "newest"))

    def open(
        self, step: Step = "latest", *, fallback: typing.Literal["none", "previous"] | None = None
    ) -> "Checkpoint":
        """Opens a checkpoint to read single values. It is not deleted while it is open."""
        _arguments.choice(fallback, "fallback", ("none", "previous"))
        with self._lock:
            return self._reader(_arguments.step_to_load(step), fallback)

    def _reader(self, step: int | None, fallback: str | None) -> "Checkpoint":
        checkpoint = Checkpoint(self, self._client.open_checkpoint(step, fallback))
        self._readers.add(checkpoint)
        return checkpoint

    def export_safetensors(
        self,
        step: Step,
        folder: str | os.PathLike[str],
        *,
        only: str | typing.Sequence[str] = (),
        rename: typing.Mapping[str, str] | None = None,
        dtype: typing.Any = None,
        shard_size: int | str | None = None,
        format: typing.Literal["huggingface", "safetensors"] = "huggingface",
        force: bool = False,
    ) -> SafetensorsExport:
        """Writes the tensors of a checkpoint as whole tensors in safetensors files, as `shoal export` does:
        model-00001-of-0000N.safetensors with an index, or one model.safetensors. Hugging Face's libraries
        read both. One rank of a job calls it, and no other has to.

        only: subtrees, such as "model"; all others are left out. Objects always are.
        rename: the beginnings of names, with what replaces them: {"model.": ""}. The first that fits applies.
        dtype: tensors of float32, float16, bfloat16, float8_e4m3fn and float8_e5m2 become this one of these
            types. All others, also float64, stay as they are.
        shard_size: the most bytes of tensors in a file, 5 GiB by default; as a number, or text such as "2GB".
        force: replaces the files of an earlier export in the folder.

        Every block that is read is verified. The program `shoal` writes the files, holds at most some 140
        MiB, and leaves no file of an export that fails. The checkpoint is not deleted meanwhile. Blocks;
        other threads may save. Raises NotFound, Corrupt, AlreadyExists, NoSpace, IoError or InvalidArgument.
        """
        arguments = _safetensors_export.options(only, rename, dtype, shard_size, format)
        if force:
            arguments.append("--force")
        path = _arguments.path(folder, "the folder")
        program = self._client.options.node_program or _program.path()
        with self.open(step) as checkpoint:
            about = checkpoint.metadata
            attempt = (about.step, about.generation, about.attempt)
            return _safetensors_export.run(program, self.root, attempt, path, arguments)

    # ---- the end ----

    def close(self, timeout: float | None = None) -> None:
        """Waits until all saves are decided, then detaches from the node. Raises the first failure that
        nothing has reported yet. After DeadlineExceeded the Checkpointer is still open."""
        with self._lock:
            for checkpoint in list(self._readers):
                checkpoint.close()
            self._log_warnings()  # of what is decided already
            self._client.close(_arguments.timeout_s(timeout))
            self._log_warnings()
            self._end_watcher()
            self._steady = None
            _open.discard(self)

    def _end_watcher(self) -> None:
        if self._watcher is not None and self._pid == os.getpid():
            self._watcher.stop()
            self._watcher = None

    def _abandon(self) -> None:
        """Ends without waiting: the node completes the saves that all ranks have staged."""
        self._end_watcher()
        self._steady = None
        self._client.abandon()
        _open.discard(self)

    def __enter__(self) -> "Checkpointer":
        return self

    def __exit__(self, kind: typing.Any, error: typing.Any, traceback: typing.Any) -> None:
        if error is None:
            self.close()
            return
        try:
            self.close(0)  # the error of the body counts, and other ranks may never come to these saves
        except Error as failed:
            logger.warning("%s", failed)
            self._abandon()


class Checkpoint:
    """A checkpoint that is open to be examined: a mapping from names to values.

    ``checkpoint["model.wte.weight"]`` reads a whole array, ``checkpoint.read(name, offsets, sizes)`` a part
    of it. Only the bytes that are asked for are read, and each is verified. An alias, such as the second name
    of tied weights, is read by its name too; `keys` has only the name under which the value is stored.
    """

    def __init__(self, checkpointer: Checkpointer, reader: typing.Any) -> None:
        self._checkpointer = checkpointer
        self._reader = reader
        self._metadata = reader.metadata
        self._about = {
            name: (is_object, dtype, tuple(shape)) for name, is_object, dtype, shape in self._metadata.values
        }
        self._structure: _tree.Stored | None = None

    @property
    def step(self) -> int:
        return int(self._metadata.step)

    @property
    def metadata(self) -> _client.Metadata:
        return self._metadata

    def keys(self) -> typing.List[str]:
        """The names of all values."""
        return [name for name in self._about if not name.startswith(_tree.STRUCTURES)]

    def __iter__(self) -> typing.Iterator[str]:
        return iter(self.keys())

    def __len__(self) -> int:
        return len(self.keys())

    def __contains__(self, name: object) -> bool:
        return name in self._about

    def about(self, name: str) -> tuple[str, tuple[int, ...]]:
        """The dtype, as safetensors names it, and the global shape of an array."""
        is_object, dtype, shape = self._find(name)
        if is_object:
            raise InvalidArgument(f"'{name}' is an object, not an array")
        return dtype, shape

    def is_array(self, name: str) -> bool:
        """Whether the checkpoint has an array of this name."""
        return name in self._about and not self._about[name][0]

    def _find(self, name: str) -> tuple[bool, str, tuple[int, ...]]:
        try:
            return self._about[self._source(name)]
        except KeyError:
            raise KeyMismatch(f"step {self.step} has no value '{name}'") from None

    def _source(self, name: str) -> str:
        """The name under which the checkpoint has the value of a name, which may be an alias."""
        if name in self._about:
            return name
        return self.structure().aliases().get(name, name)

    def __getitem__(self, name: str) -> typing.Any:
        is_object, _, _ = self._find(name)
        if not is_object:
            return self.read(name)
        with self._checkpointer._lock:
            content = self._reader.read(name)
        return _values.decode(content, name, self._checkpointer._allow_pickle)

    def read(
        self,
        name: str,
        offsets: typing.Sequence[int] | None = None,
        sizes: typing.Sequence[int] | None = None,
    ) -> typing.Any:
        """Reads an array, or the box of it that begins at `offsets`. What torch saved is a torch tensor."""
        dtype, shape = self.about(name)
        box = _arguments.box(offsets, sizes, name)
        if box is not None:
            shape = tuple(box[1])
        kind = self.structure().find(name) or "numpy"
        kind = kind["kind"] if isinstance(kind, dict) else kind
        value = _arrays.new_array(kind, dtype, shape, name)
        array = _arrays.describe(value, name, 0, writable=True)
        assert array is not None
        with self._checkpointer._lock:
            self._reader.read_into(self._source(name), box, array.address, len(_arrays.host_bytes(array)))
        return value[()] if kind == "scalar" and box is None else value

    def structure(self) -> _tree.Stored:
        if self._structure is None:
            found = self._structures()
            if found:
                self._structure = _tree.Stored(found, self._about)
            else:
                kinds = {name: "object" if about[0] else "numpy" for name, about in self._about.items()}
                self._structure = _tree.Stored.flat(kinds)
        return self._structure

    def _structures(self) -> typing.List[typing.Tuple[str, bytes]]:
        """The names and the bytes of the structures of all ranks."""
        names = [name for name in self._about if name.startswith(_tree.STRUCTURES + ".")]
        with self._checkpointer._lock:
            return [(name, self._reader.read(name)) for name in names]

    def tree(self, *, allow_pickle: bool = False) -> dict[str, typing.Any]:
        """Loads the whole state as nested dictionaries."""
        allow = _arguments.truth(allow_pickle, "allow_pickle")
        return typing.cast("dict[str, typing.Any]", self._subtree("", allow))

    def _subtree(self, name: str, allow_pickle: bool) -> typing.Any:
        """Loads a container, with all that is in it. The name of the whole state is empty."""
        found = self.structure().find(name) if name else self.structure().root
        pending = _tree.Pending(self._checkpointer._world, self._checkpointer._position, allow_pickle)
        with self._checkpointer._lock:
            root = _tree.whole(found, name, pending, self, {})
            with self._checkpointer._showing_load(self.step):
                self._reader.load(pending.state, {"": "allow_unexpected"})
        pending.finish(())
        return _tree.value_of_whole(typing.cast(_tree.Node, root), found)

    def close(self) -> None:
        """Ends the pin of the checkpoint."""
        with self._checkpointer._lock:
            self._reader.close()

    def __enter__(self) -> "Checkpoint":
        return self

    def __exit__(self, *_: typing.Any) -> None:
        self.close()

    def __del__(self, is_finalizing: typing.Callable[[], bool] = sys.is_finalizing) -> None:
        if is_finalizing():  # a thread that has ended may hold the lock
            return
        try:
            self.close()
        except Exception:  # in a forked process, or at exit
            pass

    def __repr__(self) -> str:
        return f"<shoal.Checkpoint step {self.step}, {len(self)} values>"


def _dict(state: typing.Any) -> typing.Any:
    if not isinstance(state, dict):
        raise InvalidArgument(f"a state must be a dict, not a {type(state).__name__}")
    return state


def _covers(policies: typing.Mapping[str, str], name: str) -> bool:
    """Whether the caller has stated a policy for a name, other than the default of the root."""
    parts = name.split(".")
    above = {".".join(parts[:count]) for count in range(1, len(parts) + 1)}
    return policies.get("", "allow_unexpected") != "allow_unexpected" or not above.isdisjoint(policies)


def _drop_missing(optimizers: dict[str, _tree.Node], result: typing.Any) -> None:
    """A load makes the state of all parameters of an optimizer, to fill it. Parameters that had no gradient
    before the save have none in the checkpoint, and so have none after the load."""
    missing = set(result.report.missing)
    if not missing:
        return
    for name, states in optimizers.items():
        count = len(states.children)
        dropped, in_part = _tree.drop_missing(states, missing)
        if in_part:
            error = KeyMismatch(
                f"step {result.metadata.step} has a part of the state of a parameter: missing "
                + "; missing ".join(f"'{each}'" for each in in_part[:_NAMED_MAX])
                + ". Was it saved by an optimizer of another kind, or with other options?"
            )
            error.report = result.report
            raise error
        if dropped:
            logger.info(
                "step %d has no optimizer state for %d of %d parameters of '%s': they have none now",
                result.metadata.step,
                dropped,
                count,
                name,
            )


def _warn_of_shared(walker: _tree.Walker, result: typing.Any) -> None:
    """Two names of one memory have one value. Objects with load_state_dict have got a value for each."""
    stored = set(result.report.unexpected)
    whole = tuple(f"{node.name}." for node in [*walker.statefuls, *walker.extra_states])
    for node in walker.leaves:
        if node.kind != "alias" or node.name not in stored or node.name.startswith(whole):
            continue
        target = typing.cast(_tree.Node, node.target)
        if target.array is not None and target.array.local_shape and 0 in target.array.local_shape:
            continue  # nothing of either is on this rank
        logger.warning(
            "'%s' and '%s' share their memory in this state, but step %d has a value for each: "
            "both have that of '%s' now",
            target.name,
            node.name,
            result.metadata.step,
            target.name,
        )


def _warn_of_empty(walker: _tree.Walker, result: typing.Any) -> None:
    """A dictionary that is empty in the state stays so, as that of an optimizer before its first step."""
    filled = tuple(f"{node.name}." for node in [*walker.statefuls, *walker.extra_states])
    for node in walker.nested:
        if node.kind != "dict" or node.children or f"{node.name}.".startswith(filled):
            continue
        beginning = f"{node.name}."
        count = sum(name.startswith(beginning) for name in result.report.unexpected)
        if count:
            logger.warning(
                "'%s' is an empty dict in this state, so that %d values of step %d were not loaded. If it is "
                "that of an optimizer, pass the optimizer itself",
                node.name,
                count,
                result.metadata.step,
            )


def _explain(error: KeyMismatch, walker: _tree.Walker, rank: int) -> None:
    """Adds what to do to the error of a load that lacks values."""
    per_rank = {f"{leaf.name}@rank{rank}": leaf.name for leaf in walker.leaves if leaf.kind == "per_rank"}
    missing = [per_rank.get(name, name) for name in error.report.missing]
    if not missing or error.report.shape_mismatches or error.report.mis_typed:
        return
    help = ""
    if all(".state." in f".{name}" for name in missing):
        help = ". A parameter that had no gradient before the save has no optimizer state"
    if not per_rank.keys().isdisjoint(error.report.missing):
        help += (
            f". Only ranks of the job that saved a per_rank value have one: rank {rank} keeps its own with "
            "shoal.per_rank(x, required=False)"
        )
    subtree = os.path.commonprefix([name.split(".") for name in missing])
    allowed = {".".join(subtree): "lenient"}
    help += f". To keep these values as they are, pass policies={allowed!r}"
    if "shoal.torch" in sys.modules:
        help += ", or DefaultLoadPlanner(allow_partial_load=True) to shoal.torch.load"
    error.args = (f"{error}{help}",)


def _after_fork() -> None:
    """In the child: no thread of it holds a lock. A call is then an error of the client."""
    for checkpointer in list(_open):
        checkpointer._lock = threading.RLock()


os.register_at_fork(after_in_child=_after_fork)


@atexit.register
def _close_at_exit() -> None:
    """Waits for saves, and reports those that failed. After an uncaught exception or Ctrl-C it does not wait,
    because other ranks may have ended: the node completes what all ranks have staged."""
    failed = getattr(sys, "last_value", None) is not None
    for checkpointer in list(_open):
        if checkpointer._pid != os.getpid():
            continue
        try:
            _close_one_at_exit(checkpointer, failed)
        except KeyboardInterrupt as error:
            _handle.report_at_exit(error)
    _handle.end_watchers()


def _close_one_at_exit(checkpointer: Checkpointer, failed: bool) -> None:
    # Another thread may be in a call that does not end, such as a save that other ranks never join.
    if not checkpointer._lock.acquire(timeout=_BUSY_EXIT_TIMEOUT_S if failed else _EXIT_TIMEOUT_S):
        logger.warning("%r is not closed: another thread is in a call of it", checkpointer)
        return
    try:
        checkpointer.close(0 if failed else _EXIT_TIMEOUT_S)
    except (Error, KeyboardInterrupt) as error:
        _handle.report_at_exit(error)
        checkpointer._abandon()
    finally:
        checkpointer._lock.release()
