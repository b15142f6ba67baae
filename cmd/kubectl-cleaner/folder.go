// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// folder is one that the command line names. What is below it may be somebody else's: nothing there leads out of it, and no
// link is followed.
type folder struct {
	path string
	root *os.Root
}

// openFolder opens a folder, by a link too.
func openFolder(path string) (*folder, error) {
	root, err := os.OpenRoot(path)
	if err != nil {
		return nil, err
	}
	return &folder{path: path, root: root}, nil
}

func (f *folder) close() { _ = f.root.Close() }

// walk is given what is below the folder and is no folder, by its name in it. What is behind a link is not looked at.
func (f *folder) walk(do func(name string, mode fs.FileMode) error) error {
	return fs.WalkDir(f.root.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		return do(filepath.FromSlash(name), d.Type())
	})
}

// where is a file as messages name it.
func (f *folder) where(name string) string { return filepath.Join(f.path, name) }

// regular says what to do about a file that is none.
func (f *folder) regular(name string, mode fs.FileMode) error {
	switch {
	case mode&fs.ModeSymlink != 0:
		return fmt.Errorf("%s is a symbolic link, and none is followed below %s: put the file or the folder itself there, or remove the link", f.where(name), f.path)
	case !mode.IsRegular():
		return fmt.Errorf("%s is no regular file: put one there, or remove it", f.where(name))
	}
	return nil
}

// check says whether a file is there. One that is no regular file is an error, and so is a link on the way to it.
func (f *folder) check(name string) (bool, error) {
	for parent := filepath.Dir(name); parent != "."; parent = filepath.Dir(parent) {
		info, err := f.root.Lstat(parent)
		if err != nil {
			return false, err
		}
		if !info.IsDir() {
			return false, f.regular(parent, info.Mode())
		}
	}
	info, err := f.root.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return true, f.regular(name, info.Mode())
}

// read reads a regular file.
func (f *folder) read(name string) ([]byte, error) {
	there, err := f.check(name)
	switch {
	case err != nil:
		return nil, err
	case !there:
		return nil, &fs.PathError{Op: "open", Path: f.where(name), Err: fs.ErrNotExist}
	}
	file, err := f.root.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	return io.ReadAll(file)
}

// documents reads those of a regular file.
func (f *folder) documents(name string) ([]*document, error) {
	text, err := f.read(name)
	if err != nil {
		return nil, err
	}
	return split(f.where(name), text)
}

// write puts a new file in the place of what is there, which is a regular file or nothing.
func (f *folder) write(name string, text []byte) error {
	if _, err := f.check(name); err != nil {
		return err
	}
	made := name + ".new"
	file, err := f.root.OpenFile(made, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644) // it is beside files that others may read
	if err != nil {
		return fmt.Errorf("cannot write %s: %w", f.where(name), err)
	}
	_, err = file.Write(text)
	if err = errors.Join(err, file.Close()); err == nil {
		err = f.root.Rename(made, name)
	}
	if err != nil {
		return fmt.Errorf("cannot write %s: %w", f.where(name), errors.Join(err, f.root.Remove(made)))
	}
	return nil
}
