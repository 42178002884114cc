extern "C" int attune_this_is_no_plugin() { return 0; }
