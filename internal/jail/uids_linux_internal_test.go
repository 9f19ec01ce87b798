package jail

import "testing"

// TestBlocksOfUserIDsAreNotShared: a block is leased once, until it is released.
func TestBlocksOfUserIDsAreNotShared(t *testing.T) {
	dir, first, last := t.TempDir(), 10*idsPerBlock, 12*idsPerBlock-1
	one, err := leaseUIDs(first, last, 0, dir)
	if err != nil {
		t.Fatal(err)
	}
	defer one.Release()
	two, err := leaseUIDs(first, last, 0, dir)
	if err != nil {
		t.Fatal(err)
	}
	if one.First() != first || two.First() != first+idsPerBlock {
		t.Errorf("got blocks at %d and %d, want %d and %d", one.First(), two.First(), first, first+idsPerBlock)
	}
	if _, err := leaseUIDs(first, last, 0, dir); err == nil {
		t.Error("a third lease of two blocks: got nil, want an error")
	}
	two.Release()
	again, err := leaseUIDs(first, last, 0, dir)
	if err != nil {
		t.Fatal(err)
	}
	defer again.Release()
	for n := range 3 * idsPerBlock {
		if id := again.Plain(n); id <= again.First() || id >= again.First()+idsPerBlock {
			t.Fatalf("Plain(%d): got %d, want an id of the block", n, id)
		}
	}
	if _, err := leaseUIDs(first, first+9, 0, dir); err == nil {
		t.Error("a range without a block: got nil, want an error")
	}
}

// TestASearchForUserIDsMayBeginAnywhere: every block is found from every one on.
func TestASearchForUserIDsMayBeginAnywhere(t *testing.T) {
	dir, first, last := t.TempDir(), 10*idsPerBlock, 13*idsPerBlock-1
	for _, block := range []int{2, 0, 1} {
		u, err := leaseUIDs(first, last, 5, dir)
		if err != nil {
			t.Fatal(err)
		}
		defer u.Release()
		if want := first + block*idsPerBlock; u.First() != want {
			t.Errorf("from block 5 of 3: got ids from %d on, want %d", u.First(), want)
		}
	}
}
