package log

import "slices"

// sizes remembers where in the log how many bytes were: exactly for the last appends, and before them at distances
// from the end that double. So what it says of the bytes from some offset to the end is at least half of what is there,
// and its memory is fixed.
type sizes struct{ marks []sizeMark }

// sizeMark says that bytes bytes, counted from where the table began, lie below offset.
type sizeMark struct {
	offset, bytes int64
}

const (
	maxSizeMarks   = 64
	exactSizeMarks = 16 // the last appends, none of which is thinned out
)

// begin forgets everything; what is appended from offset on will be known.
func (s *sizes) begin(offset int64) { s.marks = append(s.marks[:0], sizeMark{offset: offset}) }

// add says that n bytes were appended, and the log now ends at end.
func (s *sizes) add(end int64, n int) {
	if len(s.marks) == maxSizeMarks {
		s.thin()
	}
	s.marks = append(s.marks, sizeMark{offset: end, bytes: s.marks[len(s.marks)-1].bytes + int64(n)})
}

// thin keeps the first mark, the last ones, and of those between so many that the bytes from each to the end are at
// most twice those from the next one kept.
func (s *sizes) thin() {
	last := len(s.marks) - exactSizeMarks
	end := s.marks[len(s.marks)-1].bytes
	kept := s.marks[last]
	n := last // kept ones are moved to [n, last), from the right
	for i := last - 1; i > 0; i-- {
		if end-s.marks[i-1].bytes > 2*(end-kept.bytes) {
			n--
			s.marks[n], kept = s.marks[i], s.marks[i]
		}
	}
	if n == 1 { // not one to spare, over more than forty doublings
		n = 2
	}
	s.marks = append(s.marks[:1], s.marks[n:]...)
}

// truncate forgets what is above end.
func (s *sizes) truncate(end int64) {
	if end < s.marks[0].offset {
		s.begin(end)
		return
	}
	n := s.upTo(end)
	s.marks = s.marks[:n]
	if last := s.marks[n-1]; last.offset < end {
		s.marks = append(s.marks, sizeMark{offset: end, bytes: last.bytes}) // a lower bound from here on
	}
}

// upTo returns how many marks are at or below offset.
func (s *sizes) upTo(offset int64) int {
	i, _ := slices.BinarySearchFunc(s.marks, offset, func(m sizeMark, offset int64) int {
		if m.offset <= offset {
			return -1
		}
		return 1
	})
	return i
}

// plenty stands for the unknown size of what lies before the table's beginning.
const plenty = int64(1) << 40

// between returns the bytes from one offset to another; see Log.BytesBetween.
func (s *sizes) between(from, to int64) int64 {
	if from >= to {
		return 0
	}
	if from < s.marks[0].offset {
		return plenty
	}
	i := s.upTo(from) // the first mark above from
	if s.marks[i-1].offset < from && i < len(s.marks) {
		i++ // from is between two marks: count from the later one
	}
	j := s.upTo(to)
	return max(1, s.marks[j-1].bytes-s.marks[i-1].bytes)
}
