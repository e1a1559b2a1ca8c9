// Package record parses, validates, iterates and builds record batches of
// magic 2 (KIP-98), the only form in which Lockstep stores and sends records.
// Bytes in, values out. Checking is parsing: the only way to get a Batch from
// bytes is Parse, which verifies length, magic and CRC-32C.
package record

// Batch is one parsed batch. It refers to the bytes it was parsed from.
type Batch struct{ raw []byte }

// Info is what validation of a batch's records found.
type Info struct {
	NullKeys bool // some record has no key (a compacted topic refuses it)
}

// Checked is what checking made of the records field of one partition of a Produce request.
type Checked struct {
	Batch Batch
	Info  Info
	Err   error // it did not pass; one of the package's errors, wrapped
}
