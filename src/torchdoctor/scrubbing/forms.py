"""How keys and tokens of services look, so that they are recognised under any name and in any text.

The prefixes are those that gitleaks and detect-secrets know, and those of services around machine learning. Lengths
are lower bounds: services change them, and a value too many is hidden rather than one too few.
"""

from __future__ import annotations

import re

_FORMS = r"""
    # machine learning
    hf_[A-Za-z0-9]{16,} | api_org_[A-Za-z0-9]{16,}
  | sk-(?!learn)[\w-]{16,} | sess-[A-Za-z0-9]{20,}
  | gsk_[A-Za-z0-9]{20,} | nvapi-[\w-]{20,} | pplx-[A-Za-z0-9]{20,} | xai-[A-Za-z0-9]{20,} | r8_[A-Za-z0-9]{20,}
  | csk-[a-z0-9]{20,} | fw_[A-Za-z0-9]{20,} | tgp_v1_[\w-]{20,} | jina_[A-Za-z0-9]{20,}
  | (?:ak|as)-(?=[A-Za-z]*\d)[A-Za-z0-9]{22}(?![\w-]) | pa-(?=[\w-]{0,40}\d)(?=[\w-]{0,40}[A-Z])[\w-]{40,}
  | sk_[0-9a-f]{40,} | tvly-[\w-]{20,}
  | pcsk_\w{20,} | rpa_[A-Z0-9]{20,}
  | lsv2_(?:pt|sk)_\w{20,} | wandb_v1_\w{20,} | local-[0-9a-f]{40}(?!\w) | KGAT_[0-9a-f]{16,} | pn[ub]_[A-Za-z0-9]{20,}
  | clearml[-_]?[A-Z0-9]{20,}
    # clouds
  | (?:AKIA|ASIA|ABIA|ACCA|A3T[A-Z0-9])[A-Z0-9]{12,} | ABSK[A-Za-z0-9+/]{30,}={0,2} | bedrock-api-key-[\w+/=-]{10,}
  | AIza[\w-]{30,} | ya29\.[\w-]{10,} | 1//0[\w-]{20,} | GOCSPX-[\w-]{20,}
  | [A-Za-z0-9_~.]{3}[0-9]Q~[A-Za-z0-9_~.-]{30,} | [A-Za-z0-9+/]{86}==
  | [A-Za-z0-9]{40,64}(?:JQQJ9|AZDO)[A-Za-z0-9]{4,}
  | do[opr]_v1_[0-9a-f]{32,} | dapi[0-9a-f]{32}(?:-\d)? | dose[0-9a-f]{32} | LTAI[A-Za-z0-9]{12,} | AKID[A-Za-z0-9]{16,}
  | t1\.[A-Z0-9a-z_-]+={0,2}\.[A-Za-z0-9_-]{80,} | AQVN[\w-]{30,}
  | HRKU-[\w-]{20,} | pscale_(?:tkn|pw|oauth)_[\w.-]{16,}
  | sbp_[0-9a-f]{32,} | sb_secret_[\w-]{16,} | fo1_[\w-]{20,} | fm[12]r?_[A-Za-z0-9+/=]{40,} | vcp_[A-Za-z0-9]{20,}
  | nfp_[A-Za-z0-9]{20,} | rnd_[A-Za-z0-9]{20,} | CFPAT-[\w-]{20,} | v1\.0-[0-9a-f]{20,}-[0-9a-f]{100,}
  | SCW[A-Z0-9]{17}(?!\w)
    # code, packages, builds
  | gh[pousr]_[A-Za-z0-9]{20,} | github_pat_\w{20,}
  | gl(?:pat|ptt|dt|ft|ffct|rt|rtr|soat|imt|agent|cbt|wt)-[\w.-]{16,} | gloas-[\w-]{20,} | GR1348941[\w-]{16,}
  | ATATT3[\w=-]{20,} | ATBB[A-Za-z0-9]{20,} | ATCTT3[\w=-]{20,}
  | npm_[A-Za-z0-9]{16,} | pypi-(?=[\w-]{0,60}[A-Z0-9])[\w-]{16,} | dckr_(?:pat|oat)_[\w-]{10,} | rubygems_[0-9a-f]{20,}
  | cio[A-Za-z0-9]{32}(?!\w) | oy2[a-z0-9]{43}(?!\w) | CLOJARS_[A-Za-z0-9]{20,}
  | AKCp[A-Za-z0-9]{60,} | cmVmd[A-Za-z0-9]{50,}
  | CCIPAT_\w{20,} | bkua_[0-9a-f]{20,} | sgp_\w{30,} | sq[upa]_[0-9a-f]{40} | PMAK-[0-9a-f-]{30,} | figd_[\w-]{20,}
    # secrets of infrastructure
  | hv[sbr]\.[\w-]{20,} | [A-Za-z0-9]{14}\.atlasv1\.[\w=-]{40,} | dp\.(?:pt|st|ct|sa|scim|audit)\.[\w.-]{16,}
  | ops_eyJ[\w+/=-]{20,} | A3-[A-Z0-9]{6}-[A-Z0-9-]{20,} | AGE-SECRET-KEY-1[A-Z0-9]{20,} | sha256~[\w-]{43}
  | tskey-[\w-]{16,} | pul-[0-9a-f]{40} | NR(?:AK|JS|II|RA)-[\w-]{16,} | glsa_\w{20,} | glc_[\w+/=-]{20,}
  | (?:sdk|api|mob)-[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}
  | dt0c01\.[A-Z0-9a-z.]{20,} | sntry[su]_[\w+/=-]{20,} | EZ[AT]K[A-Za-z0-9]{40,}
    # messages, payments, shops
  | xox[a-z]-[\w-]{10,} | xoxe\.xox[bp]-[\w-]{10,} | xapp-\d-[\w-]{10,}
  | [MNO][\w-]{23,25}\.[\w-]{6}\.[\w-]{27,} | \d{8,10}:[\w-]{35}(?![\w-])
  | SG\.[\w-]{16,}\.[\w-]{16,} | (?:SK|AC)[0-9a-f]{32}(?!\w) | key-[0-9a-f]{32}(?!\w) | [0-9a-f]{32}-us\d{1,2}(?!\w)
  | (?:sk|rk|pk)_(?:live|test|prod)_[A-Za-z0-9]{8,} | whsec_[A-Za-z0-9+/=]{16,} | xkeysib-[0-9a-f-]{20,}
  | sq0[a-z]{3}-[\w-]{20,} | EAAA[\w-]{40,} | EAA[A-Z][A-Za-z0-9]{50,} | shp(?:at|ca|pa|ss)_[A-Fa-f0-9]{20,}
  | FLWSECK(?:_TEST)?-[A-Za-z0-9-]{10,} | duffel_(?:test|live)_[\w=-]{20,} | shippo_(?:live|test)_[0-9a-f]{20,}
  | lin_(?:api|oauth)_[A-Za-z0-9]{20,} | ntn_[A-Za-z0-9]{20,} | secret_[A-Za-z0-9]{30,} | fio-u-[\w=-]{30,}
  | pat[A-Za-z0-9]{14}\.[a-f0-9]{40,} | pat-(?:na|eu)\d-[0-9a-f-]{20,} | tfp_[\w-]{20,} | rdme_[a-z0-9]{30,}
    # of no service: JSON web tokens and other JSON in base64 (Neptune), keys without their armour
  | eyJ[\w+/=-]{17,}(?:\.[\w=-]+)* | ZXlK[\w+/=-]{30,} | MII[A-Z][A-Za-z0-9+/=]{60,}
"""

KNOWN_FORMS = re.compile(
    rf"""(?<![A-Za-z0-9])(?=[\w.~+/:=-]{{15}})(?:{_FORMS})
      | (?s:-----BEGIN[A-Z0-9\ ]*PRIVATE\ KEY(?:\ BLOCK)?-----.*?
          (?:-----END[A-Z0-9\ ]*PRIVATE\ KEY(?:\ BLOCK)?-----|\Z))
      | (?s:PuTTY-User-Key-File-\d.{0, 8000}?Private-MAC:\ *\w+)""",
    re.VERBOSE,
)
