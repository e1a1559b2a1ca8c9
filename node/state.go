package node

import (
	"cmp"
	"errors"
	"slices"
	"time"

	"lockstep/core/broker"
	"lockstep/core/quorum"
	"lockstep/disk"
	"lockstep/disk/segment"
	"lockstep/disk/snapshot"
)

// This file carries out the effects on what lies beside the logs.

// saveState stores the broker's small state. The core waits for it before it
// sends anything that depends on it (rule 11), so without room it is tried again until there is.
func (x *executor) saveState(e broker.SaveState) {
	if err := x.untilThereIsRoom(slow, "storing the broker's state", func() error { return x.store.SaveState(e.State) }); err != nil {
		x.in.put(broker.DiskFailed{Err: err})
		return
	}
	x.in.put(broker.StateSaved{Token: e.Token})
}

func (x *executor) saveSnapshot(e broker.SaveSnapshot) {
	err := x.untilThereIsRoom(slow, "storing a metadata snapshot", func() error {
		return x.snapshots.Save(snapshot.ID(e.Snapshot.SnapshotID), e.Snapshot.Bytes)
	})
	if err != nil {
		x.in.put(broker.DiskFailed{Err: err})
		return
	}
	x.in.put(broker.SnapshotSaved{Token: e.Token})
}

// untilThereIsRoom tries again what failed for want of space. It reports any other error, and gives up when the node stops.
// Meanwhile its worker does not count: if all of them waited here, nobody would delete anything.
func (x *executor) untilThereIsRoom(c class, doing string, do func() error) error {
	for {
		err := do()
		if !errors.Is(err, disk.ErrNoSpace) {
			return err
		}
		x.log.Error(doing+" found no room; trying again", "err", err)
		back := x.storage.standIn(c)
		select {
		case <-x.quit:
		case <-time.After(retryPause):
			err = nil
		}
		if back(); err != nil {
			return err
		}
	}
}

func (x *executor) dropSnapshots(e broker.DropSnapshots) {
	if err := x.snapshots.Drop(snapshot.ID(e.Keep)); err != nil {
		x.log.Warn("dropping old metadata snapshots failed", "err", err)
	}
}

// bootOf returns what a data directory holds for the core's birth.
func bootOf(store *segment.Store, snapshots *snapshot.Store) (broker.Boot, error) {
	state, err := store.LoadState()
	if err != nil {
		return broker.Boot{}, err
	}
	boot := broker.Boot{State: state, Clean: store.Clean()}
	for _, f := range store.Found() {
		boot.Logs = append(boot.Logs, f.Partition)
	}
	id, content, ok, err := snapshots.Newest()
	if err != nil {
		return broker.Boot{}, err
	}
	if ok {
		boot.Snapshot = &quorum.Snapshot{SnapshotID: quorum.SnapshotID(id), Bytes: content}
	}
	return boot, nil
}

// measure tells how large the logs are.
func (x *executor) measure(e broker.MeasureLogs) {
	m := broker.LogsMeasured{Token: e.Token}
	for _, l := range x.storage.logs() {
		if open := x.store.Log(l); open != nil {
			m.Sizes = append(m.Sizes, broker.LogSize{Log: l, Size: open.Size()})
		}
	}
	slices.SortFunc(m.Sizes, func(a, b broker.LogSize) int { return a.Log.Compare(b.Log) })
	total, err := x.device()
	free, freeErr := x.fs.Free()
	m.Total, m.Free, m.Err = total, free, cmp.Or(err, freeErr)
	x.in.put(m)
}
