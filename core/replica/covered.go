package replica

// What every replica has. Compaction may take a tombstone away only below it: a replica that was away, with an older record of the
// key, would come back to a log without the tombstone and keep the record for ever, however long the tombstone had stayed
// (rule 19). The delete horizon alone gives time to readers; replicas need none with this.

// Covered is the offset below which every replica of the partition, in sync or not, is known to have had everything, as it counts,
// so that none of them comes back to less. The leader knows it from what its followers fetch, and tells them.
func (r *Replica) Covered() int64 {
	if r.role == Leader {
		end := min(r.hw, r.counted())
		for i := range r.followers {
			end = min(end, r.followers[i].end) // -1 until it has fetched in this epoch
		}
		r.covered = max(r.covered, end)
	}
	return r.covered
}
