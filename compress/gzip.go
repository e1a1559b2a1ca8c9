package compress

import (
	"bytes"
	"sync"

	"github.com/klauspost/compress/gzip"
)

// gzipReader is a decoder with the source it reads from, pooled together.
type gzipReader struct {
	src bytes.Reader
	gz  gzip.Reader
}

var gzipReaders = sync.Pool{New: func() any { return new(gzipReader) }}

func decodeGzip(dst, src []byte, limit int) ([]byte, error) {
	r := gzipReaders.Get().(*gzipReader)
	defer func() {
		r.src.Reset(nil) // or the pool would keep src alive
		gzipReaders.Put(r)
	}()
	r.src.Reset(src)
	if err := r.gz.Reset(&r.src); err != nil {
		return dst, err
	}
	return readAll(dst, &r.gz, limit)
}

// appender is an io.Writer that appends.
type appender struct{ buf []byte }

func (a *appender) Write(p []byte) (int, error) {
	a.buf = append(a.buf, p...)
	return len(p), nil
}

// gzipWriter is an encoder with what it writes to, pooled together.
type gzipWriter struct {
	out appender
	gz  *gzip.Writer
}

var gzipWriters = sync.Pool{New: func() any {
	w := new(gzipWriter)
	w.gz = gzip.NewWriter(&w.out)
	return w
}}

func encodeGzip(dst, src []byte) []byte {
	w := gzipWriters.Get().(*gzipWriter)
	defer gzipWriters.Put(w)
	w.out.buf = dst
	w.gz.Reset(&w.out)
	// Neither call can fail: an appender does not.
	_, _ = w.gz.Write(src)
	_ = w.gz.Close()
	dst, w.out.buf = w.out.buf, nil
	return dst
}
