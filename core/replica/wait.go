package replica

import "slices"

// pending is a Produce that waits until the log counts up to end.
type pending struct {
	w          Waiter
	end        int64
	base       int64
	appendTime int64
}

// waiters is a queue of pending ordered by end. New ones come at the tail, save duplicates of older batches.
type waiters struct {
	list []pending
	head int
}

func (q *waiters) len() int { return len(q.list) - q.head }

func (q *waiters) add(p pending) {
	if n := len(q.list); n == q.head || q.list[n-1].end <= p.end {
		q.list = append(q.list, p)
		return
	}
	i := q.head
	for q.list[i].end <= p.end {
		i++
	}
	q.list = slices.Insert(q.list, i, p)
}

// pop takes the first out if its end is not above end.
func (q *waiters) pop(end int64) (pending, bool) {
	if q.len() == 0 || q.list[q.head].end > end {
		return pending{}, false
	}
	p := q.list[q.head]
	q.head++
	switch {
	case q.head == len(q.list):
		q.list, q.head = q.list[:0], 0
	case q.head >= 64 && q.head*2 >= len(q.list):
		q.list, q.head = q.list[:copy(q.list, q.list[q.head:])], 0
	}
	return p, true
}

// popLast takes the last out if its end is above end.
func (q *waiters) popLast(end int64) (pending, bool) {
	if q.len() == 0 || q.list[len(q.list)-1].end <= end {
		return pending{}, false
	}
	p := q.list[len(q.list)-1]
	q.list = q.list[:len(q.list)-1]
	return p, true
}

// cancel takes w out. Time is up for the oldest first, so it is found near the head.
func (q *waiters) cancel(w Waiter) bool {
	for i := q.head; i < len(q.list); i++ {
		if q.list[i].w == w {
			q.list = slices.Delete(q.list, i, i+1)
			return true
		}
	}
	return false
}
