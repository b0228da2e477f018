"""The learning curve as a picture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from openenv_trl.evaluation.report import EvaluationReport


def learning_curve(
    path: str | Path,
    log_history: Sequence[Mapping[str, Any]],
    *,
    title: str,
    before: Sequence[EvaluationReport] = (),
    after: Sequence[EvaluationReport] = (),
    references: Mapping[str, float] | None = None,
    window: int = 15,
) -> None:
    """Draw the mean reward of each training step, evaluations before and after with their intervals, and known returns.

    Args:
        path: Where to save the picture, as PNG.
        log_history: ``trainer.state.log_history``: entries with ``step`` and ``reward``.
        title: The picture's title.
        before: Evaluations of the policy before training.
        after: Evaluations of the policy after it.
        references: Known mean returns by name, drawn as lines.
        window: Steps of the moving average.

    Raises:
        ValueError: The log has no rewards.
    """
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    points = [(entry["step"], entry["reward"]) for entry in log_history if entry.get("reward") is not None]
    if not points:
        raise ValueError("The training log has no 'reward' entries to draw. Set logging_steps to 1 or more.")
    steps = [step for step, _ in points]
    rewards = [reward for _, reward in points]
    smooth = [
        sum(rewards[max(0, i - window + 1) : i + 1]) / len(rewards[max(0, i - window + 1) : i + 1])
        for i in range(len(rewards))
    ]
    figure: Any
    axes: Any
    figure, axes = plt.subplots(figsize=(8.5, 5.0), dpi=140)
    axes.plot(steps, rewards, color="#9db8d9", linewidth=0.8, label="training batch")
    axes.plot(steps, smooth, color="#1f5fa8", linewidth=2.0, label=f"mean of {window} steps")
    last = steps[-1]
    for reports, x, side in ((before, 0, "before"), (after, last, "after")):
        for offset, report in enumerate(reports):
            axes.errorbar(
                x + (offset - (len(reports) - 1) / 2) * last * 0.012,
                report.returns.mean,
                yerr=report.returns.half_width,
                fmt="os^D"[offset % 4],
                color="#c2410c" if side == "after" else "#78716c",
                capsize=3,
                markersize=5,
                label=f"{report.name}: {report.returns.mean:+.3f}",
                zorder=5,
            )
    # The range of what was learned; an evaluation far outside of it is in the legend, with its value.
    known = sorted((references or {}).items(), key=lambda item: item[1])
    shown = [*smooth, *(value for _, value in known), *(report.returns.mean for report in after)]
    margin = max(max(shown) - min(shown), 1e-6) * 0.35
    low, high = min(shown) - margin, max(shown) + margin
    axes.set_ylim(low, high)
    height = low
    for name, value in known:
        height = max(value, height + (high - low) * 0.035)  # no label covers the one below it
        axes.axhline(value, color="#444444", linewidth=0.8, linestyle=":")
        label = f"{name} {value:+.3f}"
        axes.annotate(label, (last * 1.03, height), va="center", fontsize=7.5, annotation_clip=False)
    axes.set_xlabel("GRPO step")
    axes.set_ylabel("mean return of an episode")
    axes.set_title(title, loc="left", fontsize=11)
    axes.set_xlim(-last * 0.03, last * 1.02)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(fontsize=8, frameon=False, loc="lower right")
    figure.tight_layout()
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)
    plt.close(figure)
