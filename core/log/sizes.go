package log

import "slices"

// sizes remembers where in the log how many bytes were, exactly for the last appends and ever more coarsely before:
// whenever the table is full, every second mark of its older half goes. So what it says of a distance is off by at
// most a part of it, and its memory is fixed.
type sizes struct{ marks []sizeMark }

// sizeMark says that bytes bytes, counted from where the table began, lie below offset.
type sizeMark struct {
	offset, bytes int64
}

const maxSizeMarks = 64

// begin forgets everything; what is appended from offset on will be known.
func (s *sizes) begin(offset int64) { s.marks = append(s.marks[:0], sizeMark{offset: offset}) }

// add says that n bytes were appended, and the log now ends at end.
func (s *sizes) add(end int64, n int) {
	if len(s.marks) == maxSizeMarks {
		s.thin()
	}
	s.marks = append(s.marks, sizeMark{offset: end, bytes: s.marks[len(s.marks)-1].bytes + int64(n)})
}

// thin drops every second mark of the older half, but never the first.
func (s *sizes) thin() {
	n := 0
	for i, m := range s.marks {
		if i%2 == 0 || i >= maxSizeMarks/2 {
			s.marks[n] = m
			n++
		}
	}
	s.marks = s.marks[:n]
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
