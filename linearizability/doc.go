// Package linearizability says whether what clients saw of partition logs is
// explained by one log per partition that changes atomically.
//
// It takes a History: every produce, fetch, offset lookup and deletion with
// the instants at which it was called and returned, in virtual or in real
// time. Check looks at each partition by itself:
//
//   - Content: each offset has one value for all time, each value one offset;
//     offsets have no gaps; what was refused is nowhere; what was acknowledged
//     is where it was said to be. The anomalies of Jepsen's Kafka workload are
//     looked for by name (anomaly.go, consumer.go).
//   - Order: an order of all operations exists that respects real time and the
//     sequential specification of a log (model.go). The near-linear checker
//     (order.go, where its proof is) decides this for histories of any length;
//     porcupine decides it where the near-linear one cannot, draws the picture,
//     and serves as its judge in tests.
//
// What is promised by Lockstep, and therefore checked unless Options say
// otherwise: offsets are contiguous from 0; a refused append leaves no offset
// behind; the records of one batch get consecutive offsets and become visible
// together; fetches and both ends of the log are read linearizably.
//
// Not checked here: liveness, group coordination, transactions' atomicity
// across partitions, the bytes of records (the caller turns each record into
// a Value, and a value that it cannot read into NoValue).
//
// It imports porcupine and the standard library, so that both the simulator
// and the tests of real processes can use it.
package linearizability
