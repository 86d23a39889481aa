"""`profiling`: captures of a loop, which a failing profiler must not disturb."""

import logging
import os
import pathlib
import threading

import pytest

os.environ.setdefault("JAX_PLATFORMS", "cpu")
jax = pytest.importorskip("jax", reason="profiling needs JAX")
import jax.numpy as jnp

from autotune_lowered import profiling


@jax.jit
def work(x):
    return x @ x


def names_in(logdir):
    (file,) = profiling.open_latest(logdir).files
    return file.read_bytes()


def runs_in(logdir):
    return sorted(run.name for run in pathlib.Path(logdir, "plugins", "profile").iterdir())


class ByHand(profiling.StepProfiler):
    """Captures end when the test requests it."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.ends = []

    def _start_timer(self, milliseconds, work):
        self.ends.append((milliseconds, work))
        timer = threading.Timer(3600, work)
        return timer  # never started


def test_names_are_in_the_capture(tmp_path):
    @profiling.annotate("counting_down", depth=7)
    def down(n):
        return n if n == 0 else down(n - 1)

    named = profiling.trace_function(work, "my_product", rows=8)
    unnamed = profiling.trace_function(down)
    with profiling.profile_context(tmp_path / "log", name="whole_block") as folder:
        assert folder == tmp_path / "log"
        down(3)
        unnamed(1)
        named(jnp.ones((8, 8))).block_until_ready()
        with profiling.annotate("by_hand"):
            pass
    content = names_in(folder)
    for name in (b"counting_down", b"depth", b"my_product", b"whole_block", b"by_hand", b".down"):
        assert name in content, name


def test_a_name_is_on_the_operations_that_are_traced_inside():
    lowered = jax.jit(profiling.annotate("forward_pass")(lambda x: jnp.tanh(x))).lower(jnp.ones(3))
    assert "forward_pass" in lowered.compile().as_text()


def test_an_annotation_passes_errors_on_and_is_closed():
    span = profiling.annotate("span")

    @span
    def fails():
        with span:
            raise KeyError("x")

    with pytest.raises(KeyError):
        fails()
    assert span._open.spans == []


def test_perfetto_and_details_of_the_gpu(tmp_path):
    with profiling.profile_context(tmp_path, perfetto=True, gpu_trace=True):
        work(jnp.ones((8, 8))).block_until_ready()
    assert len(list(tmp_path.rglob("perfetto_trace.json.gz"))) == 1


def test_a_context_ends_its_capture_when_the_block_fails(tmp_path):
    with pytest.raises(KeyError), profiling.profile_context(tmp_path):
        raise KeyError
    with profiling.profile_context(tmp_path):
        pass


def test_captures_begin_every_n_steps_and_end_by_duration(tmp_path):
    profiler = ByHand(tmp_path, every_n_steps=3, duration_ms=250, max_count=5)
    x = jnp.ones((8, 8))
    with profiler:
        for step in range(1, 9):
            profiler.step()
            work(x).block_until_ready()
            if step == 4:
                (milliseconds, end) = profiler.ends[0]
                assert milliseconds == 250
                end()
        assert len(profiler.ends) == 2, "steps 3 and 6"
    names = runs_in(tmp_path)
    assert [name.split("-")[0] for name in names] == ["step_00000003", "step_00000006"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["plugins"]
    assert b"step_num" in names_in(tmp_path)


def test_a_step_that_meets_a_running_capture_begins_none(tmp_path):
    with ByHand(tmp_path, every_n_steps=2) as profiler:
        for _ in range(9):
            profiler.step()
        assert len(profiler.ends) == 1
    assert len(runs_in(tmp_path)) == 1


def test_the_callers_own_step_numbers_count(tmp_path):
    with ByHand(tmp_path, every_n_steps=100) as profiler:
        for step in (0, 99, 200, 201):
            profiler.step(step)
    assert [name.split("-")[0] for name in runs_in(tmp_path)] == ["step_00000200"]


def test_the_newest_captures_are_kept_and_others_left_alone(tmp_path):
    others = [tmp_path / "plugins" / "profile" / name for name in ("2026_01_01_00_00_00", "step_00000001-5-p7")]
    for folder in others:
        folder.mkdir(parents=True)
    with ByHand(tmp_path, every_n_steps=1, max_count=2) as profiler:
        for step in range(4):
            profiler.step()
            profiler.ends[step][1]()
    kept = [name.split("-")[0] for name in runs_in(tmp_path)]
    assert kept == ["2026_01_01_00_00_00", "step_00000001", "step_00000003", "step_00000004"]
    assert all(folder.exists() for folder in others)


def test_the_timer_ends_a_capture_while_the_loop_runs_on(tmp_path):
    profiler = profiling.StepProfiler(tmp_path, every_n_steps=1, duration_ms=1)
    profiler.step()
    capture = profiler._capture
    assert capture.done.wait(60)
    assert len(runs_in(tmp_path)) == 1
    profiler.close()
    assert len(runs_in(tmp_path)) == 1


def test_a_timer_that_is_up_at_once_ends_the_capture(tmp_path):
    class AtOnce(profiling.StepProfiler):
        def _start_timer(self, milliseconds, work):
            self.thread = threading.Thread(target=work)
            self.thread.start()
            self.thread.join(0.2)  # it is up, and cannot end before the capture is made
            return threading.Timer(3600, work)

    profiler = AtOnce(tmp_path, every_n_steps=1)
    profiler.step()
    profiler.thread.join(60)
    assert len(runs_in(tmp_path)) == 1
    profiler.close()


def test_a_profiler_that_fails_costs_no_step_and_is_said_once(tmp_path, monkeypatch, caplog):
    def broken(*args, **kwargs):
        raise RuntimeError("another profiler is running")

    monkeypatch.setattr(jax.profiler, "start_trace", broken)
    steps = 0
    with profiling.StepProfiler(tmp_path, every_n_steps=1) as profiler:
        for _ in range(5):
            profiler.step()
            steps += 1
    assert steps == 5
    (record,) = caplog.records
    assert (record.levelno, record.message) == (
        logging.WARNING,
        "cannot start a capture: another profiler is running; the loop goes on, later failures like it are not logged",
    )
    assert list(tmp_path.iterdir()) == []


def test_a_capture_that_cannot_be_written_costs_no_step(tmp_path, monkeypatch, caplog):
    stop = jax.profiler.stop_trace

    def broken():
        stop()
        raise OSError(28, "no space left on device")

    monkeypatch.setattr(jax.profiler, "stop_trace", broken)
    with ByHand(tmp_path, every_n_steps=1) as profiler:
        profiler.step()
        profiler.ends[0][1]()
        profiler.step()
    assert len(profiler.ends) == 2
    assert [record.message.split(":")[0] for record in caplog.records] == ["cannot end a capture"]
    assert list(tmp_path.iterdir()) == []


def test_a_capture_whose_timer_cannot_start_is_stopped(tmp_path, monkeypatch, caplog):
    def broken(self, milliseconds, work):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(profiling.StepProfiler, "_start_timer", broken)
    profiling.StepProfiler(tmp_path, every_n_steps=1).step()
    assert "can't start new thread" in caplog.text
    with profiling.profile_context(tmp_path):
        pass


def test_a_folder_that_cannot_be_made_costs_no_step(tmp_path, caplog):
    (tmp_path / "file").write_text("")
    profiling.StepProfiler(tmp_path / "file", every_n_steps=1).step()
    assert "cannot start a capture" in caplog.text


@pytest.mark.parametrize("name", ["every_n_steps", "duration_ms", "max_count"])
def test_numbers_that_mean_nothing_are_refused(tmp_path, name):
    with pytest.raises(ValueError, match=f"{name} is 0"):
        profiling.StepProfiler(tmp_path, **{name: 0})


def test_the_latest_capture_is_all_its_hosts(tmp_path):
    root = tmp_path / "a log"
    for at, names in ((1, ["2026_a/one"]), (9, ["2026_b/two", "2026_b/one"]), (5, ["2026_c/one"])):
        for name in names:
            file = root / "plugins" / "profile" / f"{name}.xplane.pb"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(b"")
            os.utime(file, (at, at))
    unfinished = root / ".capturing-x" / "plugins" / "profile" / "2026_d" / "one.xplane.pb"
    unfinished.parent.mkdir(parents=True)
    unfinished.write_bytes(b"")
    latest = profiling.open_latest(root)
    newest = root / "plugins" / "profile" / "2026_b"
    assert latest.files == [newest / "one.xplane.pb", newest / "two.xplane.pb"]
    assert latest.command == f"xprof --logdir '{root}'"


def test_a_folder_without_captures_is_said(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no \*.xplane.pb in"):
        profiling.open_latest(tmp_path)
