package controller

// Apply applies one committed record, at its offset in the metadata log, and
// returns what it changed. An error means that this broker cannot know the
// cluster's state any more and must stop: the record is damaged, of a type or
// version unknown here, or contradicts what came before.
func (im *Image) Apply(offset int64, record []byte) (Delta, error) { return Delta{}, nil }

// Snapshot returns records that build an equal image when applied in order to an empty one.
func (im *Image) Snapshot() [][]byte { return nil }

// SetNext sets the offset after the last record applied: for an image built from a snapshot.
func (im *Image) SetNext(next int64) { im.next = next }

// Describe returns a record in readable form, for people.
func Describe(record []byte) string { return "" }
