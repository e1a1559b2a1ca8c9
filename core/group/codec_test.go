package group

import (
	"encoding/hex"
	"testing"
	"time"

	"lockstep/core"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

var drawString = rapid.StringMatching(`[a-z\.é]{0,8}`)

func drawOptional(t *rapid.T, name string) *string {
	if rapid.Bool().Draw(t, name+"?") {
		return ptr(drawString.Draw(t, name))
	}
	return nil
}

func drawPartitions(t *rapid.T, name string) []core.Partition {
	return union(rapid.SliceOfN(rapid.Custom(func(t *rapid.T) core.Partition {
		return core.Partition{Topic: core.TopicID{15: rapid.Byte().Draw(t, "topic")}, Index: rapid.Int32Range(0, 5).Draw(t, "index")}
	}), 0, 9).Draw(t, name), nil)
}

func drawMember(t *rapid.T) *subscriber {
	m := &subscriber{
		instance: drawOptional(t, "instance"), rack: drawOptional(t, "rack"), clientID: drawString.Draw(t, "client"),
		host: drawString.Draw(t, "host"), regex: drawOptional(t, "regex"), assignor: drawOptional(t, "assignor"),
		topics:    sorted(rapid.SliceOfN(drawString, 0, 4).Draw(t, "topics")),
		rebalance: millis(rapid.Int32Min(0).Draw(t, "rebalance")),
	}
	if rapid.Bool().Draw(t, "classic") {
		m.classic = &bridge{session: millis(rapid.Int32Min(0).Draw(t, "session"))}
		for range rapid.IntRange(0, 3).Draw(t, "protocols") {
			m.classic.protocols = append(m.classic.protocols,
				protocol{drawString.Draw(t, "protocol"), append([]byte{}, rapid.SliceOfN(rapid.Byte(), 0, 9).Draw(t, "metadata")...)})
		}
	}
	return m
}

func TestRecordsComeBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := drawMember(t)
		got, err := decodeMember(encodeMember(m))
		require.NoError(t, err)
		require.True(t, m.equal(got), "%+v %+v", m, got)
		cur := &current{rapid.Int32().Draw(t, "epoch"), rapid.Int32().Draw(t, "previous"),
			memberState(rapid.Int8Range(0, 2).Draw(t, "state")), drawPartitions(t, "assigned"), drawPartitions(t, "revoking")}
		gotCur, err := decodeCurrent(encodeCurrent(cur))
		require.NoError(t, err)
		require.True(t, cur.equal(gotCur))
		gotParts, err := decodePartitions(encodePartitions(cur.assigned))
		require.NoError(t, err)
		require.Equal(t, len(cur.assigned), len(gotParts))
		hash := rapid.Int64().Draw(t, "hash")
		epoch, gotHash, err := decodeGroup(encodeGroup(cur.epoch, hash))
		require.NoError(t, err)
		require.Equal(t, []any{cur.epoch, hash}, []any{epoch, gotHash})
		r := &resolved{m.topics, 3, 4}
		gotR, err := decodeResolved(encodeResolved(r))
		require.NoError(t, err)
		require.ElementsMatch(t, r.topics, gotR.topics)
		require.Equal(t, []int64{3, 4}, []int64{gotR.version, gotR.at})
	})
}

// The bytes are Kafka's: worked out by hand from its message schemas.
func TestRecordsAreKafkas(t *testing.T) {
	require.Equal(t, "0003"+"0001"+"67", hex.EncodeToString(groupKey(keyGroup, "g")))
	require.Equal(t, "0008"+"0001"+"67"+"0002"+"6d31", hex.EncodeToString(memberKey(keyCurrent, "g", "m1")))
	require.Equal(t, "0000"+"00000005"+"01"+"00"+"08"+"0000000000000009", hex.EncodeToString(encodeGroup(5, 9)))
	require.Equal(t, "0000"+"00000005"+"00", hex.EncodeToString(encodeTargetEpoch(5)))
	topic := core.TopicID{15: 7}
	set := []core.Partition{{Topic: topic, Index: 1}, {Topic: topic, Index: 3}}
	parts := "02" + "00000000000000000000000000000007" + "03" + "00000001" + "00000003" + "00"
	require.Equal(t, "0000"+parts+"00", hex.EncodeToString(encodePartitions(set)))
	require.Equal(t, "0000"+"00000004"+"00000003"+"01"+parts+"01"+"00",
		hex.EncodeToString(encodeCurrent(&current{4, 3, unrevoked, set, nil})))
	require.Equal(t, "0000"+"02"+"0274"+"0000000000000002"+"0000000000000003"+"00",
		hex.EncodeToString(encodeResolved(&resolved{[]string{"t"}, 2, 3})))
	m := &subscriber{instance: ptr("i"), clientID: "c", host: "h", topics: []string{"t"}, rebalance: 60 * time.Second,
		classic: &bridge{10 * time.Second, []protocol{{"r", []byte{9}}}}}
	require.Equal(t, "0000"+"0269"+"00"+"0263"+"0268"+"02"+"0274"+"00"+"0000ea60"+"00"+
		"01"+"00"+"0c"+"01"+"00002710"+"02"+"0272"+"0209"+"00"+"00", hex.EncodeToString(encodeMember(m)))
}

func TestUnknownTagsAreSkipped(t *testing.T) {
	b, _ := hex.DecodeString("0000" + "00000005" + "02" + "01" + "08" + "0000000000000001" + "00" + "08" + "0000000000000009")
	epoch, hash, err := decodeGroup(b)
	require.NoError(t, err)
	require.EqualValues(t, 5, epoch)
	require.EqualValues(t, 9, hash)
	_, _, err = decodeGroup([]byte{0, 1, 0, 0, 0, 5, 0})
	require.Error(t, err, "a later version")
}

// Whatever a log holds, loading it ends, takes no more memory than it has bytes for, and the coordinator serves.
func FuzzLoad(f *testing.F) {
	w := newWorld(f)
	a := w.consumer("g", "t")
	a.instance, a.regex = ptr("i"), ptr("u")
	a.beat()
	w.stable("c", 2)
	w.commitTo("g2", map[string]int64{"t": 1})
	for _, r := range w.log {
		f.Add(r.Key, r.Value)
	}
	f.Fuzz(func(t *testing.T, key, value []byte) {
		w := newWorld(t)
		w.c.Lead(0, 2)
		w.c.Load(0, key, value, 0)
		w.c.Load(0, key, nil, 0)
		w.c.Load(0, key, value, 0)
		w.c.Loaded(w.now, w.wall(), 0, &w.out)
		w.out.Lines = nil
		w.collect()
		for _, id := range []string{"g", "c", "g2"} {
			w.describe(id)
			w.describeConsumer(id)
			w.consumer(id, "t").send()
		}
		w.sleep(time.Hour)
		w.failover(0)
	})
}

// send sends a heartbeat whatever its answer.
func (m *newMember) send() { m.w.send(m.request()) }
