package sim

// noise is a client that sends what is no request. The broker closes its
// connection, and nobody else notices.
type noise struct{ clientBase }

func (c *noise) start()     { c.w.after(int64(c.plan.Start), c, evWork) }
func (c *noise) stop()      { c.stopped = true }
func (c *noise) idle() bool { return c.stopped }

func (c *noise) fire(*event) {
	if !c.more() {
		return
	}
	host := c.w.hosts[c.chance.Intn(len(c.w.hosts))]
	if !c.skips() {
		c.w.stats.Steps++
		c.w.net.dial(&babble{c}, c.lane, c.index, host)
	}
	c.w.after(c.think(), c, evWork)
}

// babble is one connection of a noise client.
type babble struct{ client *noise }

func (b *babble) opened(c *conn) {
	chance := &b.client.chance
	p := make([]byte, chance.Skewed(1, 2000))
	for i := range p {
		p[i] = byte(chance.Uint64())
	}
	if n := len(p); n > 12 && chance.Chance(700) { // what begins like a request gets further
		size := n - 4
		if chance.Chance(200) {
			size = int(chance.Below(1 << 31))
		}
		p[0], p[1], p[2], p[3] = byte(size>>24), byte(size>>16), byte(size>>8), byte(size)
		p[4], p[5] = 0, byte(chance.Intn(80))
		p[6], p[7] = 0, byte(chance.Intn(18))
	}
	c.send(dialer, p)
	if chance.Chance(500) {
		c.close(dialer)
	}
}

func (b *babble) arrived(c *conn, data []byte) {}
func (b *babble) closed(c *conn)               {}
