"""ShoalCheckpointIO under Lightning's own Trainer."""

import pytest

torch = pytest.importorskip("torch")
lightning = pytest.importorskip("lightning", reason="needs the package lightning")

import shoal  # noqa: E402
from shoal.lightning import ShoalCheckpointIO  # noqa: E402


class Module(lightning.LightningModule):
    def __init__(self, width=4):
        super().__init__()
        self.save_hyperparameters()
        self.layer = torch.nn.Linear(width, 1)
        self.seen = []

    def training_step(self, batch, index):
        loss = self.layer(batch).square().mean()
        self.seen.append(loss.item())
        return loss

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=0.1)
        return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 2)]


def fit(folder, epochs, callbacks=(), ckpt_path=None, **options):
    lightning.seed_everything(1, verbose=False)
    data = torch.utils.data.DataLoader(torch.randn(12, 4), batch_size=4)
    module = Module()
    trainer = lightning.Trainer(
        max_epochs=epochs,
        default_root_dir=folder,
        plugins=[ShoalCheckpointIO(**options)],
        callbacks=list(callbacks),
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        accelerator="cpu",
        devices=1,
    )
    trainer.fit(module, data, ckpt_path=ckpt_path)
    return module, trainer


def checkpoints(folder, **options):
    return lightning.pytorch.callbacks.ModelCheckpoint(
        dirpath=folder / "checkpoints", every_n_epochs=1, **options
    )


def test_a_run_that_is_continued_ends_as_one_that_was_not_interrupted(tmp_path):
    whole, _ = fit(tmp_path / "whole", 4, [checkpoints(tmp_path / "whole", save_top_k=-1)])
    fit(tmp_path / "part", 2, [checkpoints(tmp_path / "part", save_last=True)])
    last = tmp_path / "part" / "checkpoints" / "last.ckpt"
    assert last.is_dir()
    continued, trainer = fit(tmp_path / "part", 4, [checkpoints(tmp_path / "part")], ckpt_path=str(last))
    assert trainer.global_step == 12
    assert continued.seen == whole.seen[6:]
    for ours, theirs in zip(continued.parameters(), whole.parameters()):
        assert torch.equal(ours, theirs)


def test_old_checkpoints_are_removed(tmp_path):
    fit(tmp_path, 3, [checkpoints(tmp_path, save_top_k=1, monitor=None)])
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["epoch=2-step=9.ckpt"]


def test_what_is_loaded_is_what_lightning_saved(tmp_path):
    plugin = ShoalCheckpointIO()
    checkpoint = {"state_dict": {"w": torch.arange(4.0)}, "global_step": 7}
    checkpoint.update(loops={"epoch": 1}, empty={})
    plugin.save_checkpoint(checkpoint, tmp_path / "a.ckpt")
    checkpoint["state_dict"]["w"].zero_()
    loaded = plugin.load_checkpoint(tmp_path / "a.ckpt", map_location="cpu")
    assert loaded["state_dict"]["w"].tolist() == [0.0, 1.0, 2.0, 3.0]
    assert loaded["global_step"] == 7 and loaded["loops"] == {"epoch": 1} and loaded["empty"] == {}
    plugin.save_checkpoint({"state_dict": {}, "global_step": 8}, tmp_path / "a.ckpt")  # overwrites
    assert plugin.load_checkpoint(tmp_path / "a.ckpt")["global_step"] == 8
    plugin.teardown()


def test_a_path_in_an_object_store_stays_as_it_is(tmp_path, monkeypatch, caplog):
    monkeypatch.chdir(tmp_path)
    opened = []

    class Opened:
        _in_flight = ()

        def __init__(self, root, **options):
            opened.append(root)

        def save(self, step, state):
            opened.append(step)

        def close(self):
            opened.append("closed")

    monkeypatch.setattr("shoal.lightning.Checkpointer", Opened)
    plugin = ShoalCheckpointIO()
    plugin.save_checkpoint({"global_step": 8}, "s3://bucket/run/step-8.ckpt")
    plugin.remove_checkpoint("s3://bucket/run/step-8.ckpt")
    assert opened == ["s3://bucket/run/step-8.ckpt", 8, "closed"]
    assert "s3://bucket/run/step-8.ckpt is not deleted" in caplog.text
    assert not list(tmp_path.iterdir())


def test_bad_input(tmp_path):
    plugin = ShoalCheckpointIO()
    with pytest.raises(shoal.NotFound, match="nothing.ckpt"):
        plugin.load_checkpoint(tmp_path / "nothing.ckpt")
    with pytest.raises(shoal.InvalidArgument, match="hyper.*allow_pickle"):
        plugin.save_checkpoint({"hyper": object}, tmp_path / "a.ckpt")
    with pytest.raises(shoal.InvalidArgument, match="storage_options"):
        plugin.save_checkpoint({}, tmp_path / "b.ckpt", storage_options={})
    with pytest.raises(shoal.InvalidArgument, match="map_location"):
        plugin.load_checkpoint(tmp_path / "a.ckpt", map_location=lambda storage, place: storage)
    plugin.teardown()
