package journal

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"runtime/debug"
	"slices"

	"go.etcd.io/bbolt"
)

// The buckets of the file. Keys are text or big-endian numbers. Every value in every bucket, also in those of a later version, is eight
// hexadecimal digits of a checksum, a space, and JSON with its version in "v"; there are no buckets within buckets.
const (
	stateBucket   = "state"    // by name: formatKey, tallyKey, pauseKey, unknownKey
	remedyBucket  = "remedies" // by id
	attemptBucket = "attempts" // by kind, a zero byte, and the id of the remedy
	historyBucket = "history"  // by sequence, without gaps

	formatKey  = "format"
	tallyKey   = "tally"
	pauseKey   = "pause"
	unknownKey = "budget-unknown"
)

const (
	// formatVersion is what this agent writes into "v". Within one version fields are only ever added, and an absent field means what it
	// meant before there was one: so older and newer agents read each other's journals. What an older agent writes anew (a step of a
	// remedy, say) loses the fields that it doesn't know.
	formatVersion = 1
	sumLength     = 8
	maxValue      = 256 << 10
)

// format is the one value that tells whether this agent can read the rest.
type format struct {
	Version    int `json:"v"`
	ReadableBy int `json:"readableBy"` // the lowest version whose agents understand this journal
}

func checkFormat(data []byte) error {
	var f format
	if err := json.Unmarshal(data, &f); err != nil {
		return corrupt("its format can't be read: %w", err)
	}
	if f.ReadableBy > formatVersion {
		return corrupt("it was written by a newer agent: it has format %d, and this agent knows only %d", f.ReadableBy, formatVersion)
	}
	return nil
}

// checksum covers where a value lies too, so that one in a wrong place is noticed.
func checksum(bucket, key, data []byte) (digits [sumLength]byte) {
	table := crc32.MakeTable(crc32.Castagnoli)
	sum := crc32.Update(0, table, bucket)
	sum = crc32.Update(sum, table, key)
	sum = crc32.Update(sum, table, data)
	var raw [sumLength / 2]byte
	binary.BigEndian.PutUint32(raw[:], sum)
	hex.Encode(digits[:], raw[:])
	return digits
}

func unseal(bucket, key, value []byte) ([]byte, error) {
	if len(value) <= sumLength || value[sumLength] != ' ' {
		return nil, corrupt("%s %q has no checksum", bucket, key)
	}
	data := value[sumLength+1:]
	if checksum(bucket, key, data) != [sumLength]byte(value[:sumLength]) {
		return nil, corrupt("%s %q does not match its checksum", bucket, key)
	}
	return data, nil
}

// txn is one transaction of the journal. bbolt's own may be for reading only.
type txn struct {
	*bbolt.Tx
	tally tally // as of now
}

// put writes v as JSON.
func (t *txn) put(bucket string, key []byte, v any) error {
	var buffer bytes.Buffer
	encoder := json.NewEncoder(&buffer)
	encoder.SetEscapeHTML(false) // six bytes for one, and no browser reads this
	if err := encoder.Encode(v); err != nil {
		return fmt.Errorf("encode %s %q: %w", bucket, key, err)
	}
	data := bytes.TrimSuffix(buffer.Bytes(), []byte("\n"))
	if len(data) > maxValue-sumLength-1 {
		return fmt.Errorf("%s %q has %d bytes, more than the journal takes", bucket, key, len(data))
	}
	b, err := t.CreateBucketIfNotExists([]byte(bucket))
	if err != nil {
		return err
	}
	sum := checksum([]byte(bucket), key, data)
	b.FillPercent = 0.9 // most keys come in order, and pages are not inserted into again
	return b.Put(key, slices.Concat(sum[:], []byte{' '}, data))
}

// get reads JSON into v, a pointer; ok is false when there is nothing.
func (t *txn) get(bucket string, key []byte, v any) (ok bool, err error) {
	b := t.Bucket([]byte(bucket))
	if b == nil {
		return false, nil
	}
	value := b.Get(key)
	if value == nil {
		return false, nil
	}
	return true, decode(bucket, key, value, v)
}

func decode(bucket string, key, value []byte, v any) error {
	data, err := unseal([]byte(bucket), key, value)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(data, v); err != nil {
		return fmt.Errorf("%s %q can't be read: %w", bucket, key, err)
	}
	return nil
}

func (t *txn) remove(bucket string, key []byte) error {
	if b := t.Bucket([]byte(bucket)); b != nil {
		return b.Delete(key)
	}
	return nil
}

// cursor returns nil when there is no such bucket yet.
func (t *txn) cursor(bucket string) *bbolt.Cursor {
	if b := t.Bucket([]byte(bucket)); b != nil {
		return b.Cursor()
	}
	return nil
}

// firstKey and lastKey return nil when the bucket is empty. A key is valid only while the transaction lasts.
func (t *txn) firstKey(bucket string) (key []byte) {
	if c := t.cursor(bucket); c != nil {
		key, _ = c.First()
	}
	return key
}

func (t *txn) lastKey(bucket string) (key []byte) {
	if c := t.cursor(bucket); c != nil {
		key, _ = c.Last()
	}
	return key
}

func numberKey(n uint64) []byte { return binary.BigEndian.AppendUint64(nil, n) }

// number reads a key of numberKey, or such a key at the end of a longer one. Other keys are 0: they are not ours.
func number(key []byte) uint64 {
	if len(key) < 8 {
		return 0
	}
	return binary.BigEndian.Uint64(key[len(key)-8:])
}

// brokenError says that bbolt panicked or met memory that the file no longer backs (someone cut it off, or the disk fails). Its locks may
// be held for ever, so the database must not be touched again.
type brokenError struct{ cause any }

func (e *brokenError) Error() string {
	return fmt.Sprintf("the journal broke while it was in use: %v", e.cause)
}

// guarded runs work that touches the mapped file, and turns panics and memory faults into a brokenError.
func guarded(work func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if cause := recover(); cause != nil {
			err = &brokenError{cause}
		}
	}()
	return work()
}

func isBroken(err error) bool {
	_, broken := errors.AsType[*brokenError](err)
	return broken
}
