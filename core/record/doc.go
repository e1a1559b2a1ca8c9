// Package record parses, validates, iterates and builds record batches of
// magic 2 (KIP-98), the only form in which Lockstep stores and sends records.
// Bytes in, values out: a Batch refers to the bytes it was parsed from, and
// keys, values and headers of its records refer to them too.
//
// Checking is parsing. The only way to get a Batch from bytes is Parse (or
// ParseAll, or Check), which verifies length, magic, header and CRC-32C (rule
// 17). What a producer sent goes through Check, which verifies every record
// as well; what comes from another replica or from the log went through Check
// once and needs only Parse.
//
// The codecs themselves are not here: the caller hands in a Decompressor or a
// Compressor (package lockstep/compress), because core imports nothing but
// core, kmsg, btree and the plain standard library.
package record
