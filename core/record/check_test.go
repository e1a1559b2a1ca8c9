package record_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math"
	"testing"

	"lockstep/compress"
	"lockstep/core/record"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// forge changes a copy of a batch and makes length and CRC right again.
func forge(raw []byte, change func(raw []byte) []byte) []byte {
	raw = change(append([]byte(nil), raw...))
	binary.BigEndian.PutUint32(raw[8:], uint32(len(raw)-12))
	binary.BigEndian.PutUint32(raw[17:], crc32.Checksum(raw[21:], crc32.MakeTable(crc32.Castagnoli)))
	return raw
}

func check(raw []byte) record.Checked { return record.Check(raw, compress.Codecs{}, record.Limits{}) }

// Positions of header fields.
const (
	baseOffsetAt = 0
	epochAt      = 12
	attributesAt = 22 // the low byte
	lastDeltaAt  = 23
	maxTimeAt    = 35
	producerAt   = 43
	sequenceAt   = 53
	countAt      = 57
)

func TestCheckRefusesHeaders(t *testing.T) {
	be := binary.BigEndian
	set32 := func(at int, v int32) func([]byte) []byte {
		return func(raw []byte) []byte { be.PutUint32(raw[at:], uint32(v)); return raw }
	}
	flag := func(bits byte) func([]byte) []byte {
		return func(raw []byte) []byte { raw[attributesAt] |= bits; return raw }
	}
	good := build(t, record.Uncompressed, sample(10)...).Bytes()
	for name, c := range map[string]struct {
		change func([]byte) []byte
		want   error
		code   int16
	}{
		"magic 1":            {func(raw []byte) []byte { raw[16] = 1; return raw }, record.ErrMagic, 87},
		"two batches":        {func(raw []byte) []byte { return raw }, record.ErrOneBatch, 87},
		"unknown codec":      {flag(5), record.ErrCodec, 76},
		"log append time":    {flag(1 << 3), record.ErrTimestampType, 32},
		"transaction, no id": {flag(1 << 4), record.ErrProducer, 87},
		"control":            {flag(1 << 5), record.ErrControl, 87},
		"delete horizon":     {flag(1 << 6), record.ErrHeader, 87},
		"base offset":        {func(raw []byte) []byte { be.PutUint64(raw, 1); return raw }, record.ErrOffsets, 87},
		"negative offset":    {func(raw []byte) []byte { be.PutUint64(raw, 1<<63); return raw }, record.ErrHeader, 87},
		"offset overflow":    {func(raw []byte) []byte { be.PutUint64(raw, 1<<63-1); return raw }, record.ErrHeader, 87},
		"no records":         {set32(countAt, 0), record.ErrCount, 87},
		"negative count":     {set32(countAt, -1), record.ErrHeader, 87},
		"count and delta":    {set32(countAt, 9), record.ErrOffsets, 87},
		"negative delta":     {set32(lastDeltaAt, -1), record.ErrHeader, 87},
		"sequence":           {func(raw []byte) []byte { be.PutUint64(raw[producerAt:], 1); be.PutUint16(raw[51:], 0); return raw }, record.ErrProducer, 87},
		"producer epoch": {func(raw []byte) []byte {
			be.PutUint64(raw[producerAt:], 1)
			be.PutUint32(raw[sequenceAt:], 0)
			return raw
		}, record.ErrProducer, 87},
		"too many records": {func(raw []byte) []byte { return set32(countAt, 11)(set32(lastDeltaAt, 10)(raw)) },
			record.ErrCount, 87},
		"too few records": {func(raw []byte) []byte { return set32(countAt, 9)(set32(lastDeltaAt, 8)(raw)) },
			record.ErrCount, 87},
	} {
		t.Run(name, func(t *testing.T) {
			raw := forge(good, c.change)
			if name == "two batches" {
				raw = append(raw, good...)
			}
			got := check(raw)
			require.ErrorIs(t, got.Err, c.want)
			require.Equal(t, c.code, record.Code(got.Err))
			require.True(t, got.Batch.IsZero(), "what did not pass is no batch")
		})
	}
	require.NoError(t, check(forge(good, func(raw []byte) []byte { return raw })).Err, "forge itself changes nothing")
}

func TestCheckCodes(t *testing.T) {
	good := build(t, record.Gzip, sample(10)...).Bytes()
	require.EqualValues(t, 0, record.Code(check(good).Err))
	require.ErrorIs(t, check(nil).Err, record.ErrOneBatch)
	require.EqualValues(t, 87, record.Code(check(nil).Err))
	require.EqualValues(t, 87, record.Code(check(good[:70]).Err))
	zeros := check(make([]byte, 100)) // what a preallocated file ends with
	require.ErrorIs(t, zeros.Err, record.ErrLength)
	require.EqualValues(t, 2, record.Code(zeros.Err))

	damaged := append([]byte(nil), good...)
	damaged[len(damaged)-1]++
	require.ErrorIs(t, check(damaged).Err, record.ErrCRC)
	require.EqualValues(t, 2, record.Code(check(damaged).Err))

	noGzip := forge(good, func(raw []byte) []byte { return raw[:len(raw)-9] })
	require.ErrorIs(t, check(noGzip).Err, record.ErrCompressed)
	require.EqualValues(t, 87, record.Code(check(noGzip).Err))

	small := record.Check(good, compress.Codecs{}, record.Limits{DecompressedBytes: 10})
	require.ErrorIs(t, small.Err, record.ErrTooLarge)
	require.EqualValues(t, 10, record.Code(small.Err))
	require.ErrorIs(t, record.Check(good, nil, record.Limits{}).Err, record.ErrCodec)
}

// withRecords returns a batch with the records as given, its CRC right.
func withRecords(count int32, payload []byte) []byte {
	raw := build(panicking{}, record.Uncompressed, record.Record{}).Bytes()
	return forge(raw, func(raw []byte) []byte {
		binary.BigEndian.PutUint32(raw[lastDeltaAt:], uint32(count-1))
		binary.BigEndian.PutUint32(raw[countAt:], uint32(count))
		return append(raw[:record.HeaderSize], payload...)
	})
}

func TestMalformedRecords(t *testing.T) {
	// A record: length, attributes, timestamp delta, offset delta, key, value, headers. 0x01 is -1.
	good := []byte{12, 0, 0, 0, 1, 1, 0}
	long := bytes.Repeat([]byte{0x80}, 10)
	for name, c := range map[string]struct {
		count   int32
		payload []byte
		want    error
	}{
		"good":                    {1, good, nil},
		"varints longer than due": {1, []byte{0x92, 0, 0, 0x80, 0, 0x80, 0, 1, 1, 0x80, 0}, nil},
		"nothing":                 {1, nil, record.ErrCount},
		"one of two":              {2, good, record.ErrCount},
		"trailing byte":           {1, append(good[:7:7], 0), record.ErrCount},
		"trailing record":         {1, append(good[:7:7], good...), record.ErrCount},
		"length too short":        {1, []byte{10, 0, 0, 0, 1, 1, 0}, record.ErrRecord},
		"length too long":         {1, []byte{14, 0, 0, 0, 1, 1, 0}, record.ErrRecord},
		"length beyond headers":   {1, []byte{14, 0, 0, 0, 1, 1, 0, 0}, record.ErrRecord},
		"negative length":         {1, []byte{1, 0, 0, 0, 1, 1, 0}, record.ErrRecord},
		"endless length":          {1, long, record.ErrRecord},
		"length overflows 32 bit": {1, append([]byte{0x8c, 0x80, 0x80, 0x80, 0x10}, good[1:]...), record.ErrRecord},
		"cut in the length":       {1, []byte{0x80}, record.ErrRecord},
		"endless timestamp":       {1, append([]byte{40, 0}, bytes.Repeat([]byte{0x80}, 19)...), record.ErrRecord},
		"timestamp over 64 bit":   {1, append(append([]byte{30, 0}, bytes.Repeat([]byte{0xff}, 9)...), 2, 0, 1, 1, 0), record.ErrRecord},
		"offset delta 1":          {1, []byte{12, 0, 0, 2, 1, 1, 0}, record.ErrOffsets},
		"offset delta -1":         {1, []byte{12, 0, 0, 1, 1, 1, 0}, record.ErrOffsets},
		"same offset twice":       {2, append(good[:7:7], good...), record.ErrOffsets},
		"key length -2":           {1, []byte{12, 0, 0, 0, 3, 1, 0}, record.ErrRecord},
		"key too long":            {1, []byte{12, 0, 0, 0, 6, 1, 0}, record.ErrRecord},
		"key of 2 GB":             {1, []byte{20, 0, 0, 0, 0xfe, 0xff, 0xff, 0xff, 0x0f, 1, 0}, record.ErrRecord},
		"value length -2":         {1, []byte{12, 0, 0, 0, 1, 3, 0}, record.ErrRecord},
		"value too long":          {1, []byte{12, 0, 0, 0, 1, 4, 0}, record.ErrRecord},
		"negative header count":   {1, []byte{12, 0, 0, 0, 1, 1, 1}, record.ErrRecord},
		"header missing":          {1, []byte{12, 0, 0, 0, 1, 1, 2}, record.ErrRecord},
		"null header key":         {1, []byte{16, 0, 0, 0, 1, 1, 2, 1, 1}, record.ErrRecord},
		"header value too long":   {1, []byte{16, 0, 0, 0, 1, 1, 2, 0, 2}, record.ErrRecord},
		"million headers":         {1, []byte{18, 0, 0, 0, 1, 1, 0x80, 0x89, 0x7a, 0}, record.ErrRecord},
	} {
		t.Run(name, func(t *testing.T) {
			for _, codec := range codecs {
				packed, err := compress.Codecs{}.Compress(nil, codec, c.payload)
				require.NoError(t, err)
				raw := forge(withRecords(c.count, packed), func(raw []byte) []byte {
					raw[attributesAt] = byte(codec)
					return raw
				})
				requireErr(t, check(raw).Err, c.want)
				b, _, err := record.Parse(raw)
				require.NoError(t, err, "Parse does not look into records")
				_, err = readAll(b)
				requireErr(t, err, c.want)
			}
		})
	}
}

func requireErr(t *testing.T, err, want error) {
	t.Helper()
	if want == nil {
		require.NoError(t, err)
	} else {
		require.ErrorIs(t, err, want)
	}
}

// readAll returns the records up to the first error.
func readAll(b record.Batch) (out []record.Record, err error) {
	for r, err := range b.Records(compress.Codecs{}, record.Limits{}) {
		if err != nil {
			return out, err
		}
		out = append(out, r)
	}
	return out, nil
}

func TestTimestampOverflow(t *testing.T) {
	b := record.NewBuilder()
	b.Add(record.Record{Timestamp: 0}).Add(record.Record{Timestamp: math.MaxInt64})
	batch, err := b.Build()
	require.NoError(t, err)
	require.NoError(t, check(batch.Bytes()).Err)
	raw := forge(batch.Bytes(), func(raw []byte) []byte { raw[34] = 1; return raw }) // the base timestamp becomes 1
	require.ErrorIs(t, check(raw).Err, record.ErrRecord)
	parsed, _, err := record.Parse(raw)
	require.NoError(t, err)
	_, err = readAll(parsed)
	require.ErrorIs(t, err, record.ErrRecord)
}

// A producer's wrong max timestamp is set right, as Kafka's broker does.
func TestCheckCorrectsMaxTimestamp(t *testing.T) {
	for _, codec := range codecs {
		good := build(t, codec, sample(30)...)
		raw := forge(good.Bytes(), func(raw []byte) []byte {
			binary.BigEndian.PutUint64(raw[maxTimeAt:], 12345)
			return raw
		})
		got := check(raw)
		require.NoError(t, got.Err)
		require.Equal(t, good.Bytes(), raw, "corrected in place, with its CRC")
		require.Equal(t, good.MaxTimestamp(), got.Info.MaxTimestamp)
	}
}

// Every truncation is refused, also by ParseAll, which keeps what is whole.
func TestEveryTruncation(t *testing.T) {
	for _, codec := range codecs {
		raw := build(t, codec, sample(7)...).Bytes()
		for n := range raw {
			require.Error(t, check(raw[:n:n]).Err, "%v cut at %d", codec, n)
			_, _, err := record.Parse(raw[:n:n])
			require.ErrorIs(t, err, record.ErrTruncated)
			batches, used, err := record.ParseAll(raw[:n:n])
			require.NoError(t, err)
			require.Empty(t, batches)
			require.Zero(t, used)
		}
	}
}

// Every flipped bit is refused, but for those of the leader epoch, which the
// CRC does not cover and which the leader overwrites. Parse must let pass the
// base offset too: it is assigned after the CRC is made.
func TestEveryBitFlip(t *testing.T) {
	for _, codec := range codecs {
		good := build(t, codec, sample(7)...).Bytes()
		raw := append([]byte(nil), good...)
		for bit := range 8 * len(raw) {
			at := bit / 8
			raw[at] ^= 1 << (bit % 8)
			_, _, parseErr := record.Parse(raw)
			checkErr := check(raw).Err
			switch {
			case at >= epochAt && at < epochAt+4:
				require.NoError(t, checkErr)
			case at < baseOffsetAt+8:
				require.Error(t, checkErr, "%v, bit %d", codec, bit)
			default:
				require.Error(t, checkErr, "%v, bit %d", codec, bit)
				require.Error(t, parseErr, "%v, bit %d", codec, bit)
			}
			raw[at] ^= 1 << (bit % 8)
		}
		require.Equal(t, good, raw)
	}
}

// Bytes that were damaged with a CRC made to fit: whatever Check passes, the iterator reads without an error.
func TestCheckImpliesReadable(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		codec := rapid.SampledFrom(codecs).Draw(t, "codec")
		raw := forge(build(t, codec, sample(rapid.IntRange(1, 12).Draw(t, "n"))...).Bytes(), func(raw []byte) []byte {
			for range rapid.IntRange(1, 3).Draw(t, "damages") {
				at := rapid.IntRange(21, len(raw)-1).Draw(t, "at")
				raw[at] = rapid.Byte().Draw(t, "byte")
			}
			return raw
		})
		got := check(raw)
		if got.Err != nil {
			require.NotZero(t, record.Code(got.Err))
			return
		}
		records, err := readAll(got.Batch)
		require.NoError(t, err)
		require.Len(t, records, int(got.Batch.Count()))
	})
}

func TestParseAll(t *testing.T) {
	var raw []byte
	var ends []int
	for i, codec := range codecs {
		b := build(t, codec, sample(3)...)
		b.Assign(int64(100*i), int32(i))
		raw = append(raw, b.Bytes()...)
		ends = append(ends, len(raw))
	}
	for cut := range len(raw) + 1 {
		batches, used, err := record.ParseAll(raw[:cut])
		require.NoError(t, err)
		whole := 0
		for whole < len(ends) && ends[whole] <= cut {
			whole++
		}
		require.Len(t, batches, whole)
		if whole > 0 {
			require.Equal(t, ends[whole-1], used)
			require.EqualValues(t, 100*(whole-1), batches[whole-1].BaseOffset())
			require.EqualValues(t, whole-1, batches[whole-1].LeaderEpoch())
		} else {
			require.Zero(t, used)
		}
	}
	raw[ends[1]+80] ^= 1
	batches, used, err := record.ParseAll(raw)
	require.ErrorIs(t, err, record.ErrCRC)
	require.Len(t, batches, 2)
	require.Equal(t, ends[1], used)
}

// SetAppendTime writes the CRC that reading the whole batch would give.
func TestSetAppendTime(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		codec := rapid.SampledFrom(codecs).Draw(t, "codec")
		value := make([]byte, rapid.IntRange(0, 300_000).Draw(t, "size"))
		b := build(t, codec, record.Record{Timestamp: 77, Value: value}, record.Record{Timestamp: 78})
		now := edges.Draw(t, "now")
		b.SetAppendTime(now)
		b.Assign(9, 9)
		parsed, _, err := record.Parse(b.Bytes())
		require.NoError(t, err)
		require.True(t, parsed.LogAppendTime())
		require.Equal(t, now, parsed.MaxTimestamp())
		require.Equal(t, codec, parsed.Codec())
		for _, r := range read(t, parsed) {
			require.Equal(t, now, r.Timestamp)
		}
	})
}

// Damage done after the check is not covered up by a new CRC (rule 17).
func TestSetAppendTimeKeepsDamageVisible(t *testing.T) {
	b := build(t, record.Uncompressed, sample(5)...)
	b.Bytes()[100] ^= 4
	b.SetAppendTime(5)
	_, _, err := record.Parse(b.Bytes())
	require.ErrorIs(t, err, record.ErrCRC)
}

func TestSequences(t *testing.T) {
	for _, c := range []struct{ seq, n, want int32 }{
		{0, 0, 0}, {0, 5, 5}, {math.MaxInt32, 0, math.MaxInt32}, {math.MaxInt32, 1, 0}, {math.MaxInt32 - 1, 3, 1},
		{math.MaxInt32, math.MaxInt32, math.MaxInt32 - 1},
	} {
		require.Equal(t, c.want, record.AddSequence(c.seq, c.n), fmt.Sprint(c))
	}
	b := record.NewBuilder()
	b.ProducerID, b.ProducerEpoch, b.BaseSequence = 1, 0, math.MaxInt32
	batch, err := b.Add(record.Record{}).Add(record.Record{}).Build()
	require.NoError(t, err)
	require.NoError(t, check(batch.Bytes()).Err)
	require.EqualValues(t, 0, batch.LastSequence())
}

func TestCodecNames(t *testing.T) {
	for _, c := range codecs {
		got, ok := record.ParseCodec(c.String())
		require.True(t, ok)
		require.Equal(t, c, got)
	}
	got, ok := record.ParseCodec("uncompressed")
	require.True(t, ok)
	require.Equal(t, record.Uncompressed, got)
	_, ok = record.ParseCodec("brotli")
	require.False(t, ok)
	require.Equal(t, "codec 7", record.Codec(7).String())
	require.False(t, record.Codec(-1).Known())
}

// Checking an uncompressed batch allocates nothing.
func TestCheckDoesNotAllocate(t *testing.T) {
	raw := build(t, record.Uncompressed, sample(100)...).Bytes()
	require.Zero(t, testing.AllocsPerRun(100, func() {
		if check(raw).Err != nil {
			panic("refused")
		}
	}))
}

// panicking is a require.TestingT for helpers without one.
type panicking struct{}

func (panicking) Errorf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }
func (panicking) FailNow()                          { panic("failed") }
