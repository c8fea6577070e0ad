package journal

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
)

// bbolt believes what it reads: a file with a wrong byte can make it fault outside its map, recurse without end, allocate what a length
// field says, or quietly leave entries out. Its own Check runs on the same code, in a goroutine that nobody can protect. So the file is
// read here first, with bounds, and only what passes is opened: both meta pages, the free list, and every page of every tree, each exactly
// once. Values carry a checksum of ours, for bbolt has none for them.

// The layout of a bbolt file of version 2, in the byte order of the host. A journal always has pages of 4 KiB, also where the host's are
// larger.
const (
	boltMagic   = 0xED0CDAED
	boltVersion = 2

	pageSize    = 4096
	headerSize  = 16 // of a page: id, flags, count, overflow
	elementSize = 16 // of one element of a leaf or branch page
	bucketSize  = 16 // of a bucket's value: root page, sequence
	metaSize    = 64 // after the header of a meta page; its last 8 bytes are the checksum

	branchPage   = 0x01
	leafPage     = 0x02
	freelistPage = 0x10
	bucketFlag   = 0x01 // of a leaf element
)

const (
	// maxFile is above what a bounded history can fill, and so small that the free list can't need its form for long lists.
	maxFile = 240 << 20
	// maxOverflow bounds the memory for one page with its overflow: bbolt puts up to four values on one page rather than split it, and no
	// value is larger than maxValue.
	maxOverflow = 4*maxValue/pageSize + 8
	maxDepth    = 16
)

var order = binary.NativeEndian //nolint:gochecknoglobals // a constant that Go can't express

// errCorrupt marks everything that is wrong with the content of a file, so that it can be told from a failure to read it.
var errCorrupt = errors.New("not a sound journal")

type corruptError struct{ error }

func (e *corruptError) Is(target error) bool { return target == errCorrupt }
func (e *corruptError) Unwrap() error        { return e.error }

func corrupt(format string, args ...any) error { return &corruptError{fmt.Errorf(format, args...)} }

type meta struct {
	root, freelist, pages, txid uint64
}

// checker walks through one file.
type checker struct {
	file  io.ReaderAt
	pages uint64   // how many are in use, free ones included
	seen  []uint64 // a bit for each of them
	visit func(bucket, key, value []byte) error
	// spare holds pages that are done with, for the next ones.
	spare []*openPage
}

// openPage is a page that is being looked at, with its overflow and its entries.
type openPage struct {
	flags, count uint16
	data         []byte
	entries      []element
}

// checkFile reads a whole file of the given size and calls visit for each value in it. What visit gets is valid only until it returns. An
// error that is errCorrupt says what is wrong with the content. damage says that one of the two meta pages is broken: the file is sound
// but may be in its state before the last change, as after a crash in the middle of it.
func checkFile(file io.ReaderAt, size int64, visit func(bucket, key, value []byte) error) (damage, err error) {
	if size < 4*pageSize {
		return nil, corrupt("it has %d bytes, which is too short", size)
	}
	if size > maxFile {
		return nil, corrupt("it has %d bytes, which is too long", size)
	}
	m, damage, err := readMetas(file)
	if err != nil {
		return nil, err
	}
	if m.pages < 4 || m.pages > uint64(size)/pageSize {
		return nil, corrupt("it should have %d pages and has %d bytes: it was cut off", m.pages, size)
	}
	c := &checker{file: file, pages: m.pages, seen: make([]uint64, m.pages/64+1), visit: visit}
	if err := c.freelist(m.freelist); err != nil {
		return nil, err
	}
	if err := c.tree(nil, m.root, keyRange{}, 0); err != nil {
		return nil, err
	}
	// A page that is neither used nor free was left out by a wrong reference, with all that it leads to.
	for id := uint64(2); id < m.pages; id++ {
		if !c.claimed(id) {
			return nil, corrupt("page %d is lost", id)
		}
	}
	return damage, nil
}

// readMetas returns the meta that bbolt will choose: the newer valid one.
func readMetas(file io.ReaderAt) (m meta, damage, err error) {
	var page [2][pageSize]byte
	var read [2]meta
	var fault [2]error
	for i := range page {
		if _, err := file.ReadAt(page[i][:], int64(i)*pageSize); err != nil {
			return meta{}, nil, fmt.Errorf("read its page %d: %w", i, err)
		}
		if read[i], fault[i] = parseMeta(page[i][:], uint64(i)); errors.Is(fault[i], errCorrupt) {
			return meta{}, nil, corrupt("meta page %d %w", i, fault[i])
		}
	}
	switch {
	case fault[0] != nil && fault[1] != nil:
		return meta{}, nil, corrupt("meta page 0 %w, meta page 1 %w", fault[0], fault[1])
	case fault[0] != nil:
		// bbolt then searches page 0 for the other meta page, in case the pages are smaller. There must be nothing to find.
		if len(bytes.Trim(page[0][headerSize+metaSize:], "\x00")) > 0 {
			return meta{}, nil, corrupt("meta page 0 %w, and garbage follows", fault[0])
		}
		return read[1], corrupt("meta page 0 %w", fault[0]), nil
	case fault[1] != nil:
		return read[0], corrupt("meta page 1 %w", fault[1]), nil
	case read[1].txid > read[0].txid:
		return read[1], nil, nil
	}
	return read[0], nil, nil
}

// parseMeta returns a plain error for a meta page that bbolt would not choose either, and one that is errCorrupt where it might.
func parseMeta(page []byte, id uint64) (meta, error) {
	b := page[headerSize : headerSize+metaSize]
	sum := fnv.New64a()
	_, _ = sum.Write(b[:metaSize-8]) // a hash never fails
	m := meta{root: order.Uint64(b[16:]), freelist: order.Uint64(b[32:]), pages: order.Uint64(b[40:]), txid: order.Uint64(b[48:])}
	switch {
	case order.Uint32(b) != boltMagic:
		return meta{}, errors.New("is not one of bbolt")
	case order.Uint32(b[4:]) != boltVersion:
		return meta{}, fmt.Errorf("has bbolt's version %d, not %d", order.Uint32(b[4:]), boltVersion)
	case order.Uint64(b[metaSize-8:]) != sum.Sum64():
		return meta{}, errors.New("has a wrong checksum")
	case order.Uint32(b[8:]) != pageSize:
		return meta{}, corrupt("has pages of %d bytes, not %d", order.Uint32(b[8:]), pageSize)
	case m.txid > 1<<62 || m.txid%2 != id:
		// The next transaction would not go to the other page, and an old meta page would come to count again.
		return meta{}, corrupt("has transaction %d, which does not belong there", m.txid)
	}
	return m, nil
}

// claim holds that no page is used twice: a tree that refers to a page again could go round for ever, and a page that is both used and
// free would be overwritten.
func (c *checker) claim(id uint64) error {
	if id < 2 || id >= c.pages {
		return corrupt("page %d is referred to but there are only pages 2 to %d", id, c.pages-1)
	}
	if c.claimed(id) {
		return corrupt("page %d is used twice", id)
	}
	c.seen[id/64] |= 1 << (id % 64)
	return nil
}

func (c *checker) claimed(id uint64) bool { return c.seen[id/64]&(1<<(id%64)) != 0 }

// page claims a page with its overflow and reads it whole. It is given back with done.
func (c *checker) page(id uint64) (*openPage, error) {
	if err := c.claim(id); err != nil {
		return nil, err
	}
	if len(c.spare) == 0 {
		c.spare = append(c.spare, &openPage{data: make([]byte, pageSize)})
	}
	p := c.spare[len(c.spare)-1]
	c.spare = c.spare[:len(c.spare)-1]
	if err := c.read(p.data, id); err != nil {
		return nil, err
	}
	if said := order.Uint64(p.data); said != id {
		return nil, corrupt("page %d says that it is page %d", id, said)
	}
	p.flags, p.count = order.Uint16(p.data[8:]), order.Uint16(p.data[10:])
	overflow := uint64(order.Uint32(p.data[12:]))
	if overflow == 0 {
		return p, nil
	}
	if overflow > maxOverflow {
		return nil, corrupt("page %d claims %d more", id, overflow)
	}
	for i := id + 1; i <= id+overflow; i++ {
		if err := c.claim(i); err != nil {
			return nil, err
		}
	}
	p.data = make([]byte, (1+overflow)*pageSize)
	return p, c.read(p.data, id)
}

func (c *checker) done(p *openPage) {
	if len(p.data) == pageSize {
		c.spare = append(c.spare, p)
	}
}

func (c *checker) read(into []byte, id uint64) error {
	if _, err := c.file.ReadAt(into, int64(id)*pageSize); err != nil { //nolint:gosec // claimed: below maxFile
		return fmt.Errorf("read its page %d: %w", id, err)
	}
	return nil
}

// freelist claims the pages of the free list and those in it.
func (c *checker) freelist(id uint64) error {
	p, err := c.page(id)
	if err != nil {
		return fmt.Errorf("free list: %w", err)
	}
	defer c.done(p)
	if p.flags != freelistPage {
		return corrupt("page %d should be the free list and has type %#x", id, p.flags)
	}
	ids := p.data[headerSize:]
	// 0xffff means that the count stands elsewhere, which takes more pages than a journal may have: see maxFile.
	if p.count == 0xffff || int(p.count)*8 > len(ids) {
		return corrupt("the free list claims %d pages", p.count)
	}
	for i := range int(p.count) {
		if err := c.claim(order.Uint64(ids[i*8:])); err != nil {
			return fmt.Errorf("free list: %w", err)
		}
	}
	return nil
}
