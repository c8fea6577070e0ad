package journal

import (
	"bytes"
	"fmt"
)

// keyRange bounds the keys of a subtree: from first (nil: no bound) to below end (nil: no bound).
type keyRange struct{ first, end []byte }

// element is one entry of a page. child belongs to branch pages; flags and value to leaf pages.
type element struct {
	flags      uint32
	child      uint64
	key, value []byte
}

// read reads the entries of a page, and returns where the last one ends. bbolt packs them: the table of entries is followed at once by the
// first key, and so on. Holding it to that shows a wrong byte in any length or offset, and in the count.
func (p *openPage) read(r keyRange) (end uint64, err error) {
	end = headerSize + uint64(p.count)*elementSize
	if end > uint64(len(p.data)) {
		return 0, corrupt("it claims %d entries", p.count)
	}
	p.entries = p.entries[:0]
	last := r.first
	for i := range uint64(p.count) {
		offset := headerSize + i*elementSize
		raw := p.data[offset : offset+elementSize]
		var e element
		var pos, keyLen, valueLen uint64
		if p.flags == leafPage {
			e.flags = order.Uint32(raw)
			pos, keyLen, valueLen = uint64(order.Uint32(raw[4:])), uint64(order.Uint32(raw[8:])), uint64(order.Uint32(raw[12:]))
		} else {
			pos, keyLen, e.child = uint64(order.Uint32(raw)), uint64(order.Uint32(raw[4:])), order.Uint64(raw[8:])
		}
		if keyLen == 0 || offset+pos != end || end+keyLen+valueLen > uint64(len(p.data)) {
			return 0, corrupt("entry %d of %d has a wrong place or length", i, p.count)
		}
		e.key, e.value = p.data[end:end+keyLen], p.data[end+keyLen:end+keyLen+valueLen]
		end += keyLen + valueLen

		after := bytes.Compare(e.key, last)
		if after < 0 || (after == 0 && i > 0) || (r.end != nil && bytes.Compare(e.key, r.end) >= 0) {
			return 0, corrupt("entry %d of %d is out of order", i, p.count)
		}
		last = e.key
		p.entries = append(p.entries, e)
	}
	return end, nil
}

// tree checks a page of a bucket's tree with all below it. bucket is nil for the tree of buckets.
func (c *checker) tree(bucket []byte, id uint64, r keyRange, depth int) error {
	if depth > maxDepth {
		return corrupt("a tree is more than %d pages deep", maxDepth)
	}
	p, err := c.page(id)
	if err != nil {
		return err
	}
	defer c.done(p)
	leaf := p.flags == leafPage && (p.count > 0 || bucket == nil) // bbolt puts an empty bucket within its value
	branch := p.flags == branchPage && p.count > 0
	if !leaf && !branch {
		return corrupt("page %d is part of a tree and has type %#x with %d entries", id, p.flags, p.count)
	}
	if _, err := p.read(r); err != nil {
		return fmt.Errorf("page %d: %w", id, err)
	}
	if leaf {
		return c.leaf(bucket, p.entries)
	}
	for i, e := range p.entries {
		below := keyRange{first: e.key, end: r.end}
		if i+1 < len(p.entries) {
			below.end = p.entries[i+1].key
		}
		if err := c.tree(bucket, e.child, below, depth+1); err != nil {
			return err
		}
	}
	return nil
}

func (c *checker) leaf(bucket []byte, all []element) error {
	for _, e := range all {
		var err error
		switch {
		case bucket == nil && e.flags == bucketFlag:
			err = c.bucket(e.key, e.value)
		case bucket != nil && e.flags == 0:
			err = c.visit(bucket, e.key, e.value)
		default:
			err = corrupt("entry %.40q has the wrong type %#x", e.key, e.flags)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// bucket checks a bucket: a tree of its own or, while it is small, one page within its value.
func (c *checker) bucket(name, value []byte) error {
	if len(value) < bucketSize {
		return corrupt("bucket %.40q is cut off", name)
	}
	root, inline := order.Uint64(value), value[bucketSize:]
	if root != 0 {
		if len(inline) != 0 {
			return corrupt("bucket %.40q has two roots", name)
		}
		return c.tree(name, root, keyRange{}, 0)
	}
	if len(inline) < headerSize || order.Uint64(inline) != 0 || order.Uint16(inline[8:]) != leafPage || order.Uint32(inline[12:]) != 0 {
		return corrupt("bucket %.40q is broken", name)
	}
	p := &openPage{flags: leafPage, count: order.Uint16(inline[10:]), data: inline}
	end, err := p.read(keyRange{})
	if err != nil {
		return fmt.Errorf("bucket %.40q: %w", name, err)
	}
	if end != uint64(len(inline)) {
		return corrupt("bucket %.40q has garbage at its end", name)
	}
	return c.leaf(name, p.entries)
}
