from shmaccum.record.v2 cimport write_header
