package quorum

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
)

// HardState is what a voter must never forget: the term it is in and whom it voted for in it (rule 11, Raft figure 2).
type HardState struct {
	Term int32 // the leader epoch; 0 before the first election
	Vote int32 // None if it has not voted in Term
}

const hardStateVersion = 1

// ErrHardState says that bytes are not an encoded HardState.
var ErrHardState = errors.New("not a saved quorum state")

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Encode returns h in the form that DecodeHardState reads.
func (h HardState) Encode() []byte {
	b := make([]byte, 0, 13)
	b = append(b, hardStateVersion)
	b = binary.BigEndian.AppendUint32(b, uint32(h.Term))
	b = binary.BigEndian.AppendUint32(b, uint32(h.Vote))
	return binary.BigEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
}

// DecodeHardState reads what Encode wrote. No bytes at all are a new node's: term 0, no vote. A damaged vote
// is an error, never a vote forgotten: a voter that forgot could vote twice.
func DecodeHardState(b []byte) (HardState, error) {
	if len(b) == 0 {
		return HardState{Vote: None}, nil
	}
	if len(b) != 13 || b[0] != hardStateVersion {
		return HardState{}, fmt.Errorf("%w: %d bytes", ErrHardState, len(b))
	}
	if crc32.Checksum(b[:9], castagnoli) != binary.BigEndian.Uint32(b[9:]) {
		return HardState{}, fmt.Errorf("%w: checksum", ErrHardState)
	}
	h := HardState{Term: int32(binary.BigEndian.Uint32(b[1:])), Vote: int32(binary.BigEndian.Uint32(b[5:]))}
	if h.Term < 0 || h.Vote < None {
		return HardState{}, fmt.Errorf("%w: term %d, vote %d", ErrHardState, h.Term, h.Vote)
	}
	return h, nil
}
