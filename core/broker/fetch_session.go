package broker

import (
	"container/list"
	"slices"
	"time"

	"lockstep/core"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// fetchKey is a partition as a Fetch request names it: by name below version 13, by id from there on (KIP-516).
type fetchKey struct {
	id    core.TopicID
	topic string
	index int32
}

// fetchPart is what a client wants of one partition, and, within a session, what it was last told.
type fetchPart struct {
	key              fetchKey
	offset           int64
	maxBytes         int32
	leaderEpoch      int32 // current leader epoch as the client knows it, -1 unknown
	lastFetchedEpoch int32 // followers: epoch of the last record fetched (KIP-595)
	logStart         int64 // followers: their log start offset

	told         bool // the two below were sent in this session
	toldHW       int64
	toldLogStart int64
}

// fetchSession is an incremental fetch session (KIP-227): the client names only what changed.
type fetchSession struct {
	id    int32
	epoch int32 // that the next request must carry
	parts []*fetchPart
	index map[fetchKey]*fetchPart
	next  int // where the next answer begins, so that no partition starves behind a busy one
	used  core.Time
	elem  *list.Element
}

// fetchSessions is the broker's bounded cache of sessions. A client that finds no room is served without a session.
type fetchSessions struct {
	slots    int // max.incremental.fetch.session.cache.slots
	maxParts int // over all sessions
	parts    int
	byID     map[int32]*fetchSession
	lru      list.List // of *fetchSession, least recently used first
	rand     core.Rand
}

// sessionIdle is how long a session must be unused before another may take its slot (KIP-227: min.incremental.fetch.session.eviction.ms).
const sessionIdle = 2 * time.Minute

// maxSessionParts bounds the partitions remembered over all sessions, some 100 bytes each.
const maxSessionParts = 400_000

func newFetchSessions(slots int, rand core.Rand) *fetchSessions {
	return &fetchSessions{slots: slots, maxParts: maxSessionParts, byID: map[int32]*fetchSession{}, rand: rand}
}

// resolve finds what a Fetch request asks for: the partitions, the session they belong to (nil: none), or an error code for the whole request.
func (c *fetchSessions) resolve(now core.Time, r *kmsg.FetchRequest) (parts []*fetchPart, s *fetchSession, code int16) {
	if r.Version < 7 || r.SessionEpoch == -1 || r.SessionID == 0 {
		if r.Version >= 7 && r.SessionID != 0 {
			c.close(c.byID[r.SessionID])
		}
		parts = requestParts(r)
		if r.Version >= 7 && r.SessionEpoch == 0 && len(parts) > 0 {
			s = c.open(now, parts)
		}
		return parts, s, errNone
	}
	s = c.byID[r.SessionID]
	switch {
	case r.SessionEpoch == 0: // a full request in place of the session, if it is there still
		c.close(s)
		parts = requestParts(r)
		return parts, c.open(now, parts), errNone
	case s == nil:
		return nil, nil, errFetchSessionIDNotFound
	case r.SessionEpoch != s.epoch:
		return nil, nil, errInvalidFetchSessionEpoch
	}
	if !c.update(s, r) { // no room: the client falls back to full requests
		c.close(s)
		return nil, nil, errFetchSessionIDNotFound
	}
	c.touch(now, s)
	s.epoch = nextSessionEpoch(s.epoch)
	return s.ordered(), s, errNone
}

func nextSessionEpoch(e int32) int32 {
	if e == 1<<31-1 {
		return 1
	}
	return e + 1
}

func requestParts(r *kmsg.FetchRequest) []*fetchPart {
	n := 0
	for i := range r.Topics {
		n += len(r.Topics[i].Partitions)
	}
	all := make([]fetchPart, 0, n)
	parts := make([]*fetchPart, 0, n)
	for i := range r.Topics {
		t := &r.Topics[i]
		for j := range t.Partitions {
			all = append(all, toFetchPart(r.Version, t, &t.Partitions[j]))
			parts = append(parts, &all[len(all)-1])
		}
	}
	return parts
}

func toFetchPart(version int16, t *kmsg.FetchRequestTopic, p *kmsg.FetchRequestTopicPartition) fetchPart {
	f := fetchPart{
		key:              fetchKey{topic: t.Topic, index: p.Partition},
		offset:           p.FetchOffset,
		maxBytes:         p.PartitionMaxBytes,
		leaderEpoch:      p.CurrentLeaderEpoch,
		lastFetchedEpoch: p.LastFetchedEpoch,
		logStart:         p.LogStartOffset,
	}
	if version >= 13 {
		f.key = fetchKey{id: t.TopicID, index: p.Partition}
	}
	if version < 9 {
		f.leaderEpoch = -1
	}
	if version < 12 {
		f.lastFetchedEpoch = -1
	}
	return f
}

func (c *fetchSessions) open(now core.Time, parts []*fetchPart) *fetchSession {
	for len(c.byID) >= c.slots || c.parts+len(parts) > c.maxParts {
		oldest := c.lru.Front()
		if oldest == nil || now.Sub(oldest.Value.(*fetchSession).used) < sessionIdle {
			return nil
		}
		c.close(oldest.Value.(*fetchSession))
	}
	s := &fetchSession{id: c.newID(), epoch: 1, used: now, index: make(map[fetchKey]*fetchPart, len(parts))}
	for _, p := range parts {
		if s.index[p.key] == nil {
			s.index[p.key] = p
			s.parts = append(s.parts, p)
		}
	}
	s.elem = c.lru.PushBack(s)
	c.byID[s.id] = s
	c.parts += len(s.parts)
	return s
}

func (c *fetchSessions) newID() int32 {
	for {
		id := int32(c.rand.Uint64() & 0x7fffffff)
		if id != 0 && c.byID[id] == nil {
			return id
		}
	}
}

func (c *fetchSessions) close(s *fetchSession) {
	if s == nil || c.byID[s.id] != s {
		return
	}
	delete(c.byID, s.id)
	c.lru.Remove(s.elem)
	c.parts -= len(s.parts)
}

func (c *fetchSessions) touch(now core.Time, s *fetchSession) {
	s.used = now
	c.lru.MoveToBack(s.elem)
}

// update adds, changes and forgets partitions of a session as an incremental
// request says. It is false if the cache has no room for what is added.
func (c *fetchSessions) update(s *fetchSession, r *kmsg.FetchRequest) bool {
	before := len(s.parts)
	for _, p := range requestParts(r) {
		if have := s.index[p.key]; have != nil {
			told, hw, start := have.told, have.toldHW, have.toldLogStart
			*have = *p
			have.told, have.toldHW, have.toldLogStart = told, hw, start
			continue
		}
		s.index[p.key] = p
		s.parts = append(s.parts, p)
	}
	for i := range r.ForgottenTopics {
		t := &r.ForgottenTopics[i]
		for _, index := range t.Partitions {
			key := fetchKey{topic: t.Topic, index: index}
			if r.Version >= 13 {
				key = fetchKey{id: t.TopicID, index: index}
			}
			delete(s.index, key)
		}
	}
	if len(r.ForgottenTopics) > 0 {
		s.parts = slices.DeleteFunc(s.parts, func(p *fetchPart) bool { return s.index[p.key] != p })
	}
	c.parts += len(s.parts) - before
	return c.parts <= c.maxParts
}

// ordered returns the session's partitions, each time beginning one further, so
// that with a response full after the first few every one has its turn.
func (s *fetchSession) ordered() []*fetchPart {
	if len(s.parts) == 0 {
		return nil
	}
	s.next = (s.next + 1) % len(s.parts)
	out := make([]*fetchPart, 0, len(s.parts))
	out = append(out, s.parts[s.next:]...)
	return append(out, s.parts[:s.next]...)
}
