package replica

import "slices"

// authority is the controller: its decisions are a list, which every member reads in order and in its own time.
type authority struct {
	states []PartitionState
	epochs map[int32]int64 // registered broker epochs
	alive  map[int32]bool
}

func (a *authority) now() *PartitionState { return &a.states[len(a.states)-1] }

// change makes the next state. Where only brokers have changed, the partition's epoch stays.
func (a *authority) change(f func(st *PartitionState)) {
	st := clone(*a.now())
	f(&st)
	if before := a.now(); st.LeaderEpoch > before.LeaderEpoch || !slices.Equal(st.ISR, before.ISR) {
		st.PartitionEpoch++
	}
	for i := range st.Replicas {
		m := &st.Replicas[i]
		m.Epoch, m.Eligible = a.epochs[m.ID], a.alive[m.ID]
	}
	a.states = append(a.states, st)
}

// register gives a broker a new epoch. What it led and was in sync with in its earlier life is over, unless it is
// the last that was in sync.
func (a *authority) register(id int32) int64 {
	a.epochs[id] = int64(10 + len(a.states))
	a.fence(id)
	return a.epochs[id]
}

func (a *authority) fence(id int32) {
	a.alive[id] = false
	a.change(func(st *PartitionState) {
		if len(st.ISR) > 1 {
			st.ISR = slices.DeleteFunc(st.ISR, func(x int32) bool { return x == id })
		}
		if st.Leader == id {
			st.Leader = -1
			st.LeaderEpoch++
		}
	})
	if st := a.now(); st.Leader < 0 {
		for _, x := range st.ISR {
			if a.alive[x] {
				a.elect(x)
				return
			}
		}
	}
}

func (a *authority) elect(id int32) {
	a.change(func(st *PartitionState) { st.Leader, st.LeaderEpoch = id, st.LeaderEpoch+1 })
}

// alter is AlterPartition.
func (a *authority) alter(from int32, p *Proposal) (code int16, epoch int32, isr []int32) {
	st := a.now()
	switch {
	case st.Leader != from || st.LeaderEpoch != p.LeaderEpoch:
		return codeFencedLeaderEpoch, 0, nil
	case st.PartitionEpoch != p.PartitionEpoch:
		return codeInvalidUpdate, 0, nil
	}
	for _, m := range p.ISR {
		if !a.alive[m.ID] || a.epochs[m.ID] != m.Epoch {
			return 107, 0, nil
		}
		isr = append(isr, m.ID)
	}
	a.change(func(st *PartitionState) { st.ISR = isr })
	if a.now().PartitionEpoch == p.PartitionEpoch {
		a.states[len(a.states)-1].PartitionEpoch++ // a change to the same set is one (it rules out earlier proposals)
	}
	return 0, a.now().PartitionEpoch, isr
}
