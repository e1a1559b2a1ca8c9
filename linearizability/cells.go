package linearizability

// cell is what is known of one offset.
type cell struct {
	value int64
	claim int32 // the operation that said so first; truthClaim for the truth
	set   bool
}

// truthClaim stands for the truth where an operation's index is wanted.
const truthClaim = int32(-1)

const pageBits = 9

type page [1 << pageBits]cell

// cells maps offsets to cells: a table of pages, so that dense offsets cost an
// index and far apart ones little memory.
type cells struct {
	pages map[int64]*page
	last  *page // the page used last, and its number
	num   int64
}

// at returns the cell of an offset, making it.
func (c *cells) at(offset int64) *cell {
	n := offset >> pageBits
	if c.last == nil || c.num != n {
		if c.pages == nil {
			c.pages = map[int64]*page{}
		}
		p := c.pages[n]
		if p == nil {
			p = new(page)
			c.pages[n] = p
		}
		c.last, c.num = p, n
	}
	return &c.last[offset&(1<<pageBits-1)]
}

// get returns the cell of an offset; an unset one if nothing is known of it.
func (c *cells) get(offset int64) cell {
	p := c.pages[offset>>pageBits]
	if p == nil {
		return cell{}
	}
	return p[offset&(1<<pageBits-1)]
}

// next returns the first offset in [from, to) of which something is known. It
// takes no longer than there are pages, however far apart the two are.
func (c *cells) next(from, to int64) (offset int64, ok bool) {
	for from < to {
		n := from >> pageBits
		p := c.pages[n]
		if p == nil {
			if n = c.pageAfter(n); n < 0 {
				return 0, false
			}
			from = n << pageBits
			continue
		}
		for end := min(to, (n+1)<<pageBits); from < end; from++ {
			if p[from&(1<<pageBits-1)].set {
				return from, true
			}
		}
	}
	return 0, false
}

// pageAfter returns the number of the first page after page n, or -1.
func (c *cells) pageAfter(n int64) int64 {
	if c.pages[n+1] != nil {
		return n + 1
	}
	first := int64(-1)
	for k := range c.pages {
		if k > n && (first < 0 || k < first) {
			first = k
		}
	}
	return first
}
